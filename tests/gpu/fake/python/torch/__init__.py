"""Just what the check's torch step calls."""
import contextlib, types
import numpy, fake_arrays
from fake_arrays import Value

fake_arrays.on_import()
__version__ = "2.9.0+fake"
version = types.SimpleNamespace(cuda=None if fake_arrays.behaves("no_cuda") else "12.8", hip=None)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=True)))
_random = numpy.random.RandomState()


class device(str):
    type = property(lambda self: self.split(":")[0])


class Tensor(Value):
    def __init__(self, array, where="cpu", made_of=()):
        super().__init__(array, device(where), made_of)

    def detach(self):
        return Tensor(self.array, self.device)

    def clone(self):
        return Tensor(self.array.copy(), self.device)

    def copy_(self, other):
        self.array[...] = other.array

    def double(self):
        return Tensor(self.array.astype("float64"), self.device)

    def to(self, where):
        return Tensor(self.array.copy(), where)

    def cpu(self):
        return self.to("cpu")

    def abs(self):
        return self.same(numpy.abs(self.array))

    def max(self):
        return self.same(self.array.max())

    def __float__(self):
        return float(self.array)

    def backward(self):
        parameters = [value for value in _everything_behind(self) if isinstance(value, _Parameter)]
        for value, slope in zip(parameters, self.slopes_of(parameters)):
            value.grad = slope


class _Parameter(Tensor):
    def same(self, array, *made_of):
        return Tensor(array, fake_arrays.computed_on(self.device), made_of)


def _everything_behind(value, seen=None):
    seen = {} if seen is None else seen
    if id(value) not in seen:
        seen[id(value)] = value
        for source, _ in value.made_of:
            _everything_behind(source, seen)
    return list(seen.values())


def manual_seed(seed):
    _random.seed(seed)


def randn(*shape):
    return Tensor(_random.standard_normal(shape).astype("float32"))


no_grad = contextlib.nullcontext


class _Module:
    def __init__(self, *layers):
        self.layers = layers

    def parameters(self):
        return [value for layer in self.layers for value in layer.parameters()]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def _change(self, change):
        for value in self.parameters():
            change(value)
        return self

    def double(self):
        return self._change(lambda value: setattr(value, "array", value.array.astype("float64")))

    def float(self):
        return self._change(lambda value: setattr(value, "array", value.array.astype("float32")))

    def to(self, where):
        return self._change(lambda value: setattr(value, "device", device(where)))


class _Linear(_Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = _Parameter(_random.uniform(-1, 1, (inputs, outputs)).astype("float32") * inputs ** -0.5)
        self.bias = _Parameter(numpy.zeros(outputs, "float32"))

    def parameters(self):
        return [self.weight, self.bias]

    def __call__(self, x):
        return x @ self.weight + self.bias


class _Relu(_Module):
    def __call__(self, x):
        return x.at_least_zero()


class _Sgd:
    def __init__(self, parameters, lr):
        self.parameters, self.rate = parameters, lr

    def step(self):
        for value in self.parameters:
            value.array = value.array - self.rate * value.grad.array

    def zero_grad(self):
        for value in self.parameters:
            value.grad = None


nn = types.SimpleNamespace(Sequential=_Module, Linear=_Linear, ReLU=_Relu, functional=types.SimpleNamespace(mse_loss=lambda got, wanted: (got - wanted).square().mean()))
optim = types.SimpleNamespace(SGD=_Sgd)
cuda = types.SimpleNamespace(is_available=lambda: fake_arrays.devices() > 0, device_count=fake_arrays.devices, get_device_name=lambda _: "NVIDIA Fake 9000", synchronize=lambda: None)
