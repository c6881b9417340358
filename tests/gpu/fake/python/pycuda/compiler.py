import numpy, fake_arrays


class SourceModule:
    """Compiles nothing: it knows what the one kernel does."""

    def __init__(self, source, cache_dir):
        if "out[i] = a * x[i] + y[i]" not in source:
            raise RuntimeError("the fake compiler does not know this source")
        self.calls = 0

    def get_function(self, name):
        assert name == "saxpy"
        return self.run

    def run(self, n, a, x, y, out, block, grid):
        self.calls += 1
        result = numpy.full_like(out[0], numpy.nan)
        threads = min(int(n), block[0] * grid[0])
        result[:threads] = a * x[0][:threads] + y[0][:threads]
        if fake_arrays.behaves("wrong") or (fake_arrays.behaves("late") and self.calls > 20):
            result[n // 2] += 100
        out[0] = numpy.full_like(out[0], numpy.nan) if fake_arrays.behaves("nan") else result
