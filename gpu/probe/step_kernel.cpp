// The steps "kernel" and "compile": code that becomes machine code in this very process, by the driver's compiler and
// by NVRTC.
#include <bit>
#include <memory>
#include <optional>

#include "gpu/probe/kernel_runs.h"
#include "gpu/probe/reference.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

constexpr unsigned kThreads = 256, kMostSumBlocks = 1024;
const LibraryNames kNvrtc = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so.11.1",
                             "libnvrtc.so.11.0"};

struct LoadedKernels {
  std::optional<Module> axpy_module, sum_module;
  api::CuFunction axpy = nullptr, sum = nullptr;
};

void time_kernels(DeviceStep& gpu, const LoadedKernels& kernels, unsigned count) {
  const unsigned blocks = (count + kThreads - 1) / kThreads;
  const auto values = random_integers(count, 1, 1000);
  const DeviceArray<float> x(gpu.driver, values), y(gpu.driver, values);
  const DeviceArray<unsigned long long> total(gpu.driver, std::vector<unsigned long long>{0});
  // One thread that has nothing to do: what is left is the launch and the way back.
  gpu.step.report.step("kernel.launch");
  gpu.steady("kernel.launch",
             [&] { launch(gpu.driver, kernels.axpy, 1, 1, 0.0F, x.get(), y.get(), 0u), gpu.device.synchronize(); });
  const double axpy_seconds = gpu.steady(
      "kernel.axpy", [&] { launch(gpu.driver, kernels.axpy, blocks, kThreads, 0.0F, x.get(), y.get(), count); });
  unsigned long long launches = 0;
  gpu.steady("kernel.sum", [&] {
    launch(gpu.driver, kernels.sum, std::min(blocks, kMostSumBlocks), kThreads, reinterpret_cast<unsigned*>(x.get()),
           count, total.get());
    ++launches;
  });
  gpu.step.report.fact("kernel.axpy_gb_s", fmt::format("{:.1f}", 12e-9 * count / axpy_seconds));
  unsigned long long expected = 0;
  for (const float value : values) expected += std::bit_cast<unsigned>(value);
  if (const auto result = total.download().front(); result != launches * expected)
    fail<Error>("the sum of {} values, taken {} times, is {} instead of {}", count, launches, result,
                launches * expected);
  // With a = 0 the result is y itself, however often: it must still be there.
  if (y.download() != values) fail<Error>("axpy of {} elements with a = 0 changed some of them", count);
}

}  // namespace

std::string run_kernel(Step& step) {
  DeviceStep gpu(step);
  step.report.metric("kernel.context", MetricKind::kFirstCall, gpu.device.context_seconds());
  const auto axpy_ptx = kernel_ptx("axpy"), sum_ptx = kernel_ptx("sum");
  LoadedKernels kernels;
  gpu.first("kernel.load", [&] {
    kernels.axpy_module.emplace(gpu.driver, "axpy.ptx", axpy_ptx.c_str());
    kernels.sum_module.emplace(gpu.driver, "sum.ptx", sum_ptx.c_str());
    kernels.axpy = kernels.axpy_module->function("axpy");
    kernels.sum = kernels.sum_module->function("sum");
  });
  const DeviceArray<float> x(gpu.driver, std::vector<float>{3}), y(gpu.driver, std::vector<float>{4});
  gpu.first("kernel.first", [&] { launch(gpu.driver, kernels.axpy, 1, 1, 2.0F, x.get(), y.get(), 1u); });
  if (const float result = y.download().front(); !(result == 10))
    fail<Error>("the first kernel says that 2 x 3 + 4 is {}", result);
  step.report.step("the cases of axpy and sum");
  check_axpy(gpu.driver, kernels.axpy);
  check_sum(gpu.driver, kernels.sum);
  time_kernels(gpu, kernels, static_cast<unsigned>(step.size_or(std::size_t{1} << 24)));
  step.report.step("the cases of axpy and sum, again");
  check_axpy(gpu.driver, kernels.axpy);
  check_sum(gpu.driver, kernels.sum);
  return "axpy and sum from PTX for compute_60, all cases exact";
}

namespace {

using Nvrtc = Api<api::NvrtcFunctions>;

// A compiled program; the compiler's complaints are the error.
class Compilation {
 public:
  Compilation(const Nvrtc& nvrtc, const std::string& source, const std::string& architecture) : nvrtc_(nvrtc) {
    nvrtc_.call(nvrtc_.nvrtcCreateProgram, &program_, source.c_str(), "kernel.cu", 0,
                static_cast<const char* const*>(nullptr), static_cast<const char* const*>(nullptr));
    const std::string option = "--gpu-architecture=" + architecture;
    const char* options[] = {option.c_str()};
    const auto status = nvrtc_.nvrtcCompileProgram(program_, 1, options);
    if (status == api::kNvrtcSuccess) return;
    const auto words = log();
    nvrtc_.nvrtcDestroyProgram(&program_);
    fail<Error>("nvrtcCompileProgram for {} returned {} ({}): {}", architecture, error_name(nvrtc_, status),
                nvrtc_.library.path(), words);
  }
  ~Compilation() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  std::string ptx() const { return text(nvrtc_.nvrtcGetPTXSize, nvrtc_.nvrtcGetPTX); }
  std::string cubin() const { return text(nvrtc_.nvrtcGetCUBINSize, nvrtc_.nvrtcGetCUBIN); }

 private:
  template <typename Size, typename Get>
  std::string text(const Size& size, const Get& get) const {
    std::size_t bytes = 0;
    nvrtc_.call(size, program_, &bytes);
    constexpr std::size_t kMost = std::size_t{64} << 20;
    if (bytes > kMost) fail<Error>("{} says {} bytes for a small kernel", size.name, bytes);
    std::string result(bytes, '\0');
    nvrtc_.call(get, program_, result.data());
    return result;
  }
  std::string log() const {
    try {
      auto words = text(nvrtc_.nvrtcGetProgramLogSize, nvrtc_.nvrtcGetProgramLog);
      words.resize(std::min(words.find('\0'), words.size()));
      return words;
    } catch (const Error& error) {
      return error.what();
    }
  }
  const Nvrtc& nvrtc_;
  api::NvrtcProgram program_ = nullptr;
};

// In ascending order.
std::vector<int> known_architectures(const Nvrtc& nvrtc) {
  constexpr int kWithoutAsking = 75;  // NVRTC before 11.2 cannot say; all know this one
  if (!nvrtc.nvrtcGetNumSupportedArchs || !nvrtc.nvrtcGetSupportedArchs) return {kWithoutAsking};
  int count = 0;
  nvrtc.call(nvrtc.nvrtcGetNumSupportedArchs, &count);
  if (count < 1 || count > 1000) fail<Error>("nvrtcGetNumSupportedArchs says {}", count);
  std::vector<int> all(static_cast<std::size_t>(count));
  nvrtc.call(nvrtc.nvrtcGetSupportedArchs, all.data());
  std::ranges::sort(all);
  return all;
}

// What to compile for: the newest that is no newer than the device; without a device, the oldest.
int chosen_architecture(const std::vector<int>& known, const DeviceStep* gpu) {
  if (!gpu) return known.front();
  const int device = gpu->device.facts().major * 10 + gpu->device.facts().minor;
  const auto above = std::ranges::upper_bound(known, device);
  if (above == known.begin())
    fail<Error>(
        "this NVRTC compiles for sm_{} and newer, the device is sm_{}: what the image compiles at run time does not "
        "run here",
        known.front(), device);
  return *std::prev(above);
}

void check_ptx(const std::string& ptx, int architecture) {
  for (const char* entry : {"axpy", "sum"}) {
    if (ptx.find(fmt::format(".entry {}", entry)) == std::string::npos)
      fail<Error>("NVRTC's PTX of {} bytes has no entry {}", ptx.size(), entry);
  }
  if (ptx.find(fmt::format(".target sm_{}", architecture)) == std::string::npos)
    fail<Error>("NVRTC's PTX is not for sm_{}", architecture);
}

void check_cubin(const std::string& cubin) {
  constexpr std::size_t kHeader = 64, kMachine = 18;
  constexpr unsigned char kCuda = 190;  // e_machine
  if (cubin.size() < kHeader ||
      !cubin.starts_with("\x7f"
                         "ELF") ||
      static_cast<unsigned char>(cubin[kMachine]) != kCuda)
    fail<Error>("NVRTC's cubin of {} bytes is no ELF file for CUDA", cubin.size());
}

// The driver is optional here; that it is there and does not work is another step's matter.
std::unique_ptr<DeviceStep> device_if_there(Step& step) {
  try {
    return std::make_unique<DeviceStep>(step);
  } catch (const Error& reason) {
    step.report.fact("compile.device", reason.what());
    return nullptr;
  }
}

void run_compiled(const DeviceStep& gpu, const char* what, const std::string& code) {
  gpu.step.report.step(std::string("running ") + what);
  const Module module(gpu.driver, what, code.c_str());
  check_axpy(gpu.driver, module.function("axpy"));
  check_sum(gpu.driver, module.function("sum"));
}

}  // namespace

std::string run_compile(Step& step) {
  std::optional<Nvrtc> opened;
  step.report.metric("compile.open", MetricKind::kFirstCall,
                     seconds_of([&] { opened.emplace(open_api<api::NvrtcFunctions>(step, kNvrtc)); }));
  const auto& nvrtc = *opened;
  int major = 0, minor = 0;
  nvrtc.call(nvrtc.nvrtcVersion, &major, &minor);
  step.report.fact("nvrtc", fmt::format("{}.{}", major, minor));
  open_beforehand({fmt::format("libnvrtc-builtins.so.{}.{}", major, minor)}, step.folders);
  const auto gpu = device_if_there(step);
  const int architecture = chosen_architecture(known_architectures(nvrtc), gpu.get());
  const std::string source = kernel_source("axpy") + kernel_source("sum");
  std::string ptx, cubin;
  step.report.step(fmt::format("compiling for compute_{}", architecture));
  step.report.metric("compile.ptx", MetricKind::kFirstCall, seconds_of([&] {
                       ptx = Compilation(nvrtc, source, fmt::format("compute_{}", architecture)).ptx();
                     }));
  check_ptx(ptx, architecture);
  const std::string compiled = fmt::format("NVRTC {}.{} compiles to PTX", major, minor);
  // A device of a newer generation than NVRTC knows has PTX compiled by its driver, as frameworks do.
  if (gpu && gpu->device.facts().major > architecture / 10) {
    run_compiled(*gpu, "NVRTC's PTX", ptx);
    return fmt::format("{} for compute_{}, which gives exact results; it knows no machine code of this device",
                       compiled, architecture);
  }
  if (!nvrtc.nvrtcGetCUBINSize || !nvrtc.nvrtcGetCUBIN) return compiled + "; it is too old for machine code";
  step.report.step(fmt::format("compiling for sm_{}", architecture));
  step.report.metric("compile.cubin", MetricKind::kFirstCall, seconds_of([&] {
                       cubin = Compilation(nvrtc, source, fmt::format("sm_{}", architecture)).cubin();
                     }));
  check_cubin(cubin);
  if (!gpu) return fmt::format("{} and to a cubin for sm_{}; there is no device to run it", compiled, architecture);
  // Not the PTX: a driver older than this NVRTC, which the toolkit allows, does not know its version of PTX.
  run_compiled(*gpu, "NVRTC's cubin", cubin);
  return fmt::format("{} and to a cubin for sm_{}, which gives exact results", compiled, architecture);
}

}  // namespace varve::gpu::probe
