// y = a x + y, one element a thread. The counterpart of axpy.ptx.
extern "C" __global__ void axpy(float a, const float* x, float* y, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = a * x[i] + y[i];
}
