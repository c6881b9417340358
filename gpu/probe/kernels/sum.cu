// Adds all values to *total: each thread takes every so many-th value, a block adds up in shared memory, one thread
// of it adds to the total. The counterpart of sum.ptx.
extern "C" __global__ void sum(const unsigned* values, unsigned count, unsigned long long* total) {
  __shared__ unsigned long long partial[1024];
  unsigned long long taken = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) taken += values[i];
  partial[threadIdx.x] = taken;
  __syncthreads();
  // The upper half of the slots is added to the lower; of an odd number the middle one waits.
  for (unsigned live = blockDim.x; live > 1;) {
    const unsigned half = (live + 1) / 2;
    if (threadIdx.x < live - half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
    live = half;
  }
  if (threadIdx.x == 0) atomicAdd(total, partial[0]);
}
