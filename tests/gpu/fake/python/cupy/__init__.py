"""Just what the check's cupy step calls. Arrays are NumPy's own, with another product."""
import types
import numpy, fake_arrays

fake_arrays.on_import()
__version__ = "13.6.0+fake"
maximum = numpy.maximum


class ndarray(numpy.ndarray):
    def __matmul__(self, right):
        return fake_arrays.product(self.view(numpy.ndarray), right.view(numpy.ndarray), "gpu").view(ndarray)

    def mean(self):
        return super().mean() * (numpy.nan if fake_arrays.behaves("nan_loss") else 1)


def asarray(array):
    return numpy.array(array).view(ndarray)


def asnumpy(array):
    return numpy.array(array)


cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceCount=fake_arrays.devices, runtimeGetVersion=lambda: 12080),
                             get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None))
