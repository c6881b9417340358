#include "gpu/probe/step.h"

namespace varve::gpu::probe {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

const std::vector<StepEntry>& step_entries() {
  static const std::vector<StepEntry> entries = {
      {"driver", run_driver, "the driver starts and counts at least one device; which they are", ""},
      {"libraries", run_libraries, "every CUDA library of the image opens with RTLD_NOW", ""},
      {"compile", run_compile, "NVRTC compiles a kernel to PTX and to machine code; run where there is a device", ""},
      {"device", run_device, "clocks, temperature, errors of memory, pages and rows to be retired, as NVML has them",
       ""},
      {"memory", run_memory, "memory of the device: to it, from it, within it; every byte compared", "MiB (256)"},
      {"kernel", run_kernel, "kernels from PTX text, compiled by the driver in this process; exact results",
       "elements of the timed ones (16777216)"},
      {"gemm", run_gemm, "cuBLAS sgemm against sums of the host; cuBLASLt opens", "rows and columns (4096)"},
      {"convolution", run_convolution, "cuDNN convolution 3 x 3 against sums of the host",
       "rows and columns of an image (56)"},
      {"fft", run_fft, "cuFFT there and back, and single frequencies against sums of the host", "points (1048576)"},
      {"solve", run_solve, "cuSOLVER getrf and getrs: how far A x is from b", "rows and columns (2048)"},
      {"sparse", run_sparse, "cuSPARSE SpMV against sums of the host", "rows (1048576)"},
      {"random", run_random, "cuRAND: range, mean, variance, spread; the same seed gives the same",
       "numbers (16777216)"},
      {"nccl", run_nccl, "NCCL all-reduce on sets of devices, from each alone to all; exact sums",
       "floats per device (16777216)"},
  };
  return entries;
}

namespace {

int announced(Step& step) {
  const int ordinal = step.device.value_or(0);
  step.report.step(fmt::format("making a context on device {}", ordinal));
  return ordinal;
}

}  // namespace

DeviceStep::DeviceStep(Step& told)
    : step(told),
      driver(open_driver(step.report, step.folders)),
      watch(step.report, step.folders),
      device(driver, announced(step)) {
  step.report.fact("gpu", device.facts().name);
  watch.add(device.facts());
}

}  // namespace varve::gpu::probe
