import fake_arrays


def init():
    pass


class Context:
    @staticmethod
    def synchronize():
        pass

    def pop(self):
        pass


class Device:
    count = staticmethod(fake_arrays.devices)

    def __init__(self, number):
        pass

    def make_context(self):
        return Context()


def to_device(array):
    return [array.copy()]


def from_device(place, shape, dtype):
    return place[0].reshape(shape).astype(dtype)
