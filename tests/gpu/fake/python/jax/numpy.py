from jax import Array

square, mean = Array.square, Array.mean


def maximum(values, least):
    assert least == 0
    return values.at_least_zero()
