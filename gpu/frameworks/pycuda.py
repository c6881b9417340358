

def pycuda_step():
    pycuda = imported("pycuda")
    import numpy
    import pycuda.driver as driver
    fact("pycuda", getattr(pycuda, "VERSION_TEXT", "unknown"))
    doing("a context on the first device")
    driver.init()
    count = driver.Device.count()
    if count == 0:
        failed("PyCUDA lists no GPU")
    context = driver.Device(0).make_context()
    try:
        off = saxpy(numpy, driver)
    finally:
        context.pop()
    ok("PyCUDA %s on %d GPU%s: a kernel compiled by nvcc gives the CPU's result, off by %.1e" % (_facts["pycuda"], count, "" if count == 1 else "s", off))


def saxpy(numpy, driver):
    from pycuda.compiler import SourceModule
    size, factor = 1 << 20, 2.5
    draw = numpy.random.RandomState(7)
    x, y = draw.standard_normal(size).astype("float32"), draw.standard_normal(size).astype("float32")
    wanted = factor * x.astype("float64") + y
    doing("nvcc compiles a kernel")
    start = time.perf_counter()
    module = SourceModule("""
        __global__ void saxpy(int n, float a, const float *x, const float *y, float *out) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) out[i] = a * x[i] + y[i];
        }""", cache_dir=False)
    metric("pycuda.compile", "first", time.perf_counter() - start)
    kernel = module.get_function("saxpy")
    on_x, on_y, on_out = driver.to_device(x), driver.to_device(y), driver.to_device(numpy.full(size, numpy.nan, "float32"))

    def step():
        kernel(numpy.int32(size), numpy.float32(factor), on_x, on_y, on_out, block=(256, 1, 1), grid=((size + 255) // 256, 1))
        driver.Context.synchronize()
        return driver.from_device(on_out, (size,), "float32")

    for which, got in zip(("the first kernel", "the last kernel"), timed("pycuda.kernel", step)):
        off = distance(numpy, [got], [wanted])
        judge(which, off)
    return off


run(pycuda_step)
