

def jax_step():
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")   # it would take most of the memory
    jax = imported("jax")
    import numpy
    doing("jax.devices()")
    devices = [device for device in jax.devices() if device.platform in ("gpu", "cuda")]
    if not devices:
        failed("JAX %s lists no GPU, only %s; it would compute there without a word" % (jax.__version__, ", ".join(str(device) for device in jax.devices())))
    fact("jax.devices", ", ".join(str(getattr(device, "device_kind", device)) for device in devices))
    jax.config.update("jax_default_matmul_precision", "highest")
    import jax.numpy as jnp
    values = problem(numpy)
    wanted = reference(numpy, values)

    def loss_of(weights, x, y):
        return jnp.mean(jnp.square(jnp.maximum(x @ weights[0], 0) @ weights[1] - y))

    @jax.jit
    def train(x, y, first, second):
        loss, slopes = jax.value_and_grad(loss_of)((first, second), x, y)
        return loss, first - RATE * slopes[0], second - RATE * slopes[1]

    doing("memory of the first device")
    on_device = [jax.device_put(value, devices[0]) for value in values]

    def step():
        got = train(*on_device)
        for value in got:
            value.block_until_ready()
        return got

    for which, got in zip(("the first compiled step", "the last compiled step"), timed("jax.step", step)):
        places = got[0].devices() if callable(getattr(got[0], "devices", None)) else {got[0].device()}
        if any(place.platform not in ("gpu", "cuda") for place in places):
            failed("%s was not made on the GPU" % which)
        off = distance(numpy, got, wanted)
        judge(which, off)
    ok("JAX %s on %d GPU%s: a compiled step as on the CPU, off by %.1e" % (jax.__version__, len(devices), "" if len(devices) == 1 else "s", off))


run(jax_step)
