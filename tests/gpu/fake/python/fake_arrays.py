"""What the fake frameworks share: the behaviours of VARVE_FAKE_GPU, arrays on a device, and gradients by a tape."""
import os
import numpy

_settings = [part.partition("=")[::2] for part in os.environ.get("VARVE_FAKE_GPU", "").split(",") if part]
_products = {}
_multiplied = 0


def number(name, otherwise):
    return next((int(value) for key, value in _settings if key == name), otherwise)


def behaves(how):
    return ("python", how) in _settings


def on_import():
    if behaves("forge"):
        print('varve-gpu-probe: {"result": "ok", "detail": "forged while being imported"}', flush=True)
    if behaves("import_error"):
        raise ImportError("libcudart.so.12: cannot open shared object file: No such file or directory")
    if behaves("crash"):
        os.abort()


def devices():
    return 0 if behaves("no_gpu") else number("devices", 1)


def computed_on(device):
    """Where an operation really takes place: quietly on the CPU where that is asked for."""
    return "cpu" if behaves("cpu") else device


def product(a, b, device):
    """A matrix product; the same two are multiplied once. On a GPU it can be wrong, from the beginning or later."""
    global _multiplied
    key = (a.dtype.str, a.shape, hash(a.tobytes()), b.shape, hash(b.tobytes()))
    if key not in _products:
        _products[key] = a @ b
    result = _products[key]
    if device != "cpu":
        _multiplied += 1
        if behaves("nan"):
            return numpy.full_like(result, numpy.nan)
        if behaves("wrong") or (behaves("late") and _multiplied > 20):
            result = result.copy()
            result.flat[result.size // 2] += 100
    return result


class Value:
    """An array on a device that remembers what it was made of, if anybody watches."""

    def __init__(self, array, device="cpu", made_of=()):
        self.array, self.device, self.made_of, self.grad = numpy.asarray(array), device, made_of, None

    def same(self, array, *made_of):
        return type(self)(array, computed_on(self.device), made_of)

    def other(self, value):
        return value if isinstance(value, Value) else type(self)(numpy.asarray(value, self.array.dtype), self.device)

    def __matmul__(self, right):
        a, b = self.array, right.array
        return self.same(product(a, b, self.device), (self, lambda slope: product(slope, b.T, self.device)), (right, lambda slope: product(a.T, slope, self.device)))

    def __add__(self, right):
        right = self.other(right)
        return self.same(self.array + right.array, (self, lambda slope: _sum_to(slope, self.array.shape)), (right, lambda slope: _sum_to(slope, right.array.shape)))

    def __sub__(self, right):
        return self + self.other(right) * -1.0

    def __mul__(self, right):
        right = self.other(right)
        return self.same(self.array * right.array, (self, lambda slope: _sum_to(slope * right.array, self.array.shape)),
                         (right, lambda slope: _sum_to(slope * self.array, right.array.shape)))

    __rmul__ = __mul__

    def __truediv__(self, right):
        return self.same(self.array / self.other(right).array)

    def square(self):
        return self * self

    def at_least_zero(self):
        return self.same(numpy.maximum(self.array, 0), (self, lambda slope: slope * (self.array > 0)))

    def mean(self):
        loss = numpy.nan if self.device != "cpu" and behaves("nan_loss") else self.array.mean(dtype=self.array.dtype)
        return self.same(numpy.asarray(loss, self.array.dtype), (self, lambda slope: numpy.full_like(self.array, slope / self.array.size)))

    def slopes_of(self, values):
        """The derivatives of this number by each of `values`."""
        slopes, order, seen = {id(self): numpy.ones_like(self.array)}, [], set()

        def visit(value):
            if id(value) not in seen:
                seen.add(id(value))
                for source, _ in value.made_of:
                    visit(source)
                order.append(value)

        visit(self)
        for value in reversed(order):
            for source, back in value.made_of if id(value) in slopes else ():
                slopes[id(source)] = slopes.get(id(source), 0) + back(slopes[id(value)])
        return [value.same(slopes[id(value)].astype(value.array.dtype)) for value in values]


def _sum_to(slope, shape):
    while slope.ndim > len(shape):
        slope = slope.sum(axis=0)
    return slope
