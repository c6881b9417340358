// The kernels as nvcc compiles them, on the cases of the table. Exit 0: all exact; 1: not; 77: no device.
#include <cstdio>
#include <vector>

#include "axpy.cu"
#include "cases.h"
#include "sum.cu"

namespace {

using namespace varve::gpu::kernels;

bool failed(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return false;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  return true;
}

// Memory of the device with a copy of values; null if there is none.
template <typename T>
T* uploaded(const std::vector<T>& values) {
  T* at = nullptr;
  const std::size_t bytes = (values.size() + 1) * sizeof(T);
  if (failed(cudaMalloc(&at, bytes), "cudaMalloc")) return nullptr;
  const auto copied = cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  if (failed(copied, "cudaMemcpy")) return nullptr;
  return at;
}

bool axpy_is_right(const AxpyCase& test) {
  std::vector<float> x, y;
  for (unsigned i = 0; i < test.count; ++i) {
    x.push_back(static_cast<float>(axpy_x(test, i)));
    y.push_back(static_cast<float>(axpy_y(test, i)));
  }
  float* const device_x = uploaded(x);
  float* const device_y = uploaded(y);
  if (!device_x || !device_y) return false;
  const unsigned blocks = (test.count + test.threads - 1) / test.threads;
  axpy<<<blocks, test.threads>>>(static_cast<float>(test.a), device_x, device_y, test.count);
  if (failed(cudaMemcpy(y.data(), device_y, y.size() * sizeof(float), cudaMemcpyDeviceToHost), "axpy")) return false;
  long long total = 0;
  for (unsigned i = 0; i < test.count; ++i) {
    if (y[i] != static_cast<float>(axpy_result(test, i)))
      return std::printf("axpy of %u: element %u is %g\n", test.count, i, y[i]), false;
    total += static_cast<long long>(y[i]);
  }
  cudaFree(device_x);
  cudaFree(device_y);
  return total == test.total || (std::printf("axpy of %u: the total is %lld\n", test.count, total), false);
}

bool sum_is_right(const SumCase& test) {
  std::vector<unsigned> values;
  for (unsigned i = 0; i < test.count; ++i) values.push_back(sum_value(test, i));
  std::vector<unsigned long long> total = {0};
  unsigned* const device_values = uploaded(values);
  unsigned long long* const device_total = uploaded(total);
  if (!device_values || !device_total) return false;
  sum<<<test.blocks, test.threads>>>(device_values, test.count, device_total);
  if (failed(cudaMemcpy(total.data(), device_total, sizeof total[0], cudaMemcpyDeviceToHost), "sum")) return false;
  cudaFree(device_values);
  cudaFree(device_total);
  return total[0] == test.total || (std::printf("sum of %u: %llu\n", test.count, total[0]), false);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::puts("skipped: no device"), 77;
  bool right = true;
  for (const auto& test : kAxpyCases) right &= axpy_is_right(test);
  for (const auto& test : kSumCases) right &= sum_is_right(test);
  std::puts(right ? "all cases are exact" : "failed");
  return right ? 0 : 1;
}
