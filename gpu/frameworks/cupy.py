

def cupy_step():
    os.environ.setdefault("CUPY_CACHE_IN_MEMORY", "1")   # compiled code of an earlier process would hide what a first call costs
    cupy = imported("cupy")
    import numpy
    doing("cupy.cuda.runtime.getDeviceCount()")
    count = cupy.cuda.runtime.getDeviceCount()
    if count == 0:
        failed("CuPy %s lists no GPU" % cupy.__version__)
    fact("cupy.cuda", cupy.cuda.runtime.runtimeGetVersion())
    values = problem(numpy)
    wanted = reference(numpy, values)
    doing("memory of the first device")
    on_device = [cupy.asarray(value) for value in values]

    def step():
        got = training_step(cupy, *on_device)
        cupy.cuda.get_current_stream().synchronize()
        return got

    for which, got in zip(("the first step", "the last step"), timed("cupy.step", step)):
        off = distance(numpy, [cupy.asnumpy(value) for value in got], wanted)
        judge(which, off)
    ok("CuPy %s on %d GPU%s: a step as on the CPU, off by %.1e" % (cupy.__version__, count, "" if count == 1 else "s", off))


run(cupy_step)
