"""Just what the check's jax step calls."""
import types
import fake_arrays
from fake_arrays import Value

fake_arrays.on_import()
__version__ = "0.7.2+fake"
config = types.SimpleNamespace(update=lambda name, value: None)
_cpu = types.SimpleNamespace(platform="cpu", device_kind="cpu")
_gpu = types.SimpleNamespace(platform="gpu", device_kind="NVIDIA Fake 9000")


class Array(Value):
    def __array__(self, dtype=None):
        return self.array.astype(dtype) if dtype else self.array

    def block_until_ready(self):
        return self

    def devices(self):
        return [_cpu if self.device == "cpu" else _gpu]


def devices():
    return [_gpu] * fake_arrays.devices() or [_cpu]


def device_put(array, device):
    return Array(array, device.platform)


def jit(code):
    return code


def value_and_grad(code):
    def both(values, *others):
        result = code(values, *others)
        return result, result.slopes_of(values)
    return both
