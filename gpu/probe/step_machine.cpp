// The steps "driver" and "device": which devices there are, and how they are.
#include <algorithm>
#include <fstream>

#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

const LibraryNames kCudart = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};

std::string cuda_version(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// NVML's text of a device or of the system; "" where it has none.
template <typename Ask>
std::string nvml_text(unsigned bytes, Ask&& ask) {
  std::string text(bytes, '\0');
  if (ask(text.data(), bytes) != api::kNvmlSuccess) return "";
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

std::string driver_version(const std::optional<Nvml>& nvml) {
  if (nvml) {
    if (auto version = nvml_text(api::kNvmlVersionBytes,
                                 [&](char* to, unsigned bytes) { return nvml->nvmlSystemGetDriverVersion(to, bytes); });
        !version.empty())
      return version;
  }
  // Where there is no NVML in the container, the kernel's part of the driver says it.
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version;
}

std::string product_name(const std::optional<Nvml>& nvml, const DeviceFacts& facts) {
  api::NvmlDevice device = nullptr;
  if (!nvml || nvml->nvmlDeviceGetHandleByPciBusId_v2(facts.pci_bus_id.c_str(), &device) != api::kNvmlSuccess)
    return facts.name;
  const auto name = nvml_text(api::kNvmlNameBytes,
                              [&](char* to, unsigned bytes) { return nvml->nvmlDeviceGetName(device, to, bytes); });
  return name.empty() ? facts.name : name;
}

void tell_runtime_version(Step& step) {
  // Optional: an image whose programs have the runtime linked in has no such file.
  try {
    if (auto library = Library::find(kCudart, step.folders)) {
      const Api<api::CudartFunctions> cudart(std::move(*library));
      int version = 0;
      step.report.step("cudaRuntimeGetVersion");
      cudart.call(cudart.cudaRuntimeGetVersion, &version);
      step.report.fact("cuda_runtime", cuda_version(version));
      step.report.fact("lib." + cudart.library.name(), cudart.library.path());
    }
  } catch (const Error& error) {
    step.report.warn(error.what());
  }
}

void add_once(std::string& joined, const std::string& name) {
  if ((" + " + joined + " + ").find(" + " + name + " + ") == std::string::npos)
    joined += (joined.empty() ? "" : " + ") + name;
}

}  // namespace

std::string run_driver(Step& step) {
  std::optional<Driver> opened;
  step.report.metric("driver.init", MetricKind::kFirstCall,
                     seconds_of([&] { opened.emplace(open_driver(step.report, step.folders)); }));
  const auto& driver = *opened;
  int version = 0;
  driver.call(driver.cuDriverGetVersion, &version);
  step.report.fact("cuda_driver", cuda_version(version));
  const DeviceWatch watch(step.report, step.folders);
  if (const auto text = driver_version(watch.nvml()); !text.empty()) step.report.fact("driver", text);
  const int count = device_count(driver);
  std::string names, uuids;
  for (int i = 0; i < count; ++i) {
    step.report.step(fmt::format("asking the driver about device {}", i));
    const auto facts = device_facts(driver, i);
    const auto product = product_name(watch.nvml(), facts);
    add_once(names, product);
    uuids += (i ? " " : "") + facts.uuid;
    step.report.fact(fmt::format("device.{}", i),
                     fmt::format("{}, compute capability {}.{}, {} MiB, {}, {}", product, facts.major, facts.minor,
                                 facts.memory_bytes >> 20, facts.pci_bus_id, facts.uuid));
  }
  step.report.fact("gpu", names);
  step.report.fact("uuid", uuids);
  step.report.fact("devices", std::to_string(count));
  tell_runtime_version(step);
  return fmt::format("{} device{}: {}; driver for CUDA {}", count, count == 1 ? "" : "s", names, cuda_version(version));
}

namespace {

// Facts and warnings of one device from NVML. What the device does not know is left out.
class Condition {
 public:
  Condition(Report& report, const Nvml& nvml, api::NvmlDevice device, int ordinal)
      : report_(report), nvml_(nvml), device_(device), ordinal_(ordinal) {}

  void tell_clocks() {
    number("clock.sm_mhz", nvml_.nvmlDeviceGetClockInfo, api::kNvmlClockSm);
    number("clock.memory_mhz", nvml_.nvmlDeviceGetClockInfo, api::kNvmlClockMem);
    number("clock.sm_max_mhz", nvml_.nvmlDeviceGetMaxClockInfo, api::kNvmlClockSm);
    number("clock.memory_max_mhz", nvml_.nvmlDeviceGetMaxClockInfo, api::kNvmlClockMem);
    number("temperature_c", nvml_.nvmlDeviceGetTemperature, api::kNvmlTemperatureGpu);
    number("power_mw", nvml_.nvmlDeviceGetPowerUsage);
    number("power_limit_mw", nvml_.nvmlDeviceGetEnforcedPowerLimit);
    int mode = 0;
    if (nvml_.nvmlDeviceGetPersistenceMode &&
        told("nvmlDeviceGetPersistenceMode", nvml_.nvmlDeviceGetPersistenceMode(device_, &mode))) {
      fact("persistence", mode == api::kNvmlFeatureEnabled ? "on" : "off");
    }
  }

  void tell_ecc() {
    int current = 0, pending = 0;
    if (!nvml_.nvmlDeviceGetEccMode ||
        !told("nvmlDeviceGetEccMode", nvml_.nvmlDeviceGetEccMode(device_, &current, &pending))) {
      fact("ecc", "none");
      return;
    }
    fact("ecc", current == api::kNvmlFeatureEnabled ? "on" : "off");
    if (current != api::kNvmlFeatureEnabled) return;
    const auto fresh = errors("ecc.uncorrected", api::kNvmlVolatileEcc);
    const auto ever = errors("ecc.uncorrected_ever", api::kNvmlAggregateEcc);
    if (fresh.value_or(0)) fault(fmt::format("{} uncorrected ECC errors since the driver was loaded", *fresh));
    if (!fresh.value_or(0) && ever.value_or(0))
      fact("ecc.note", "uncorrected errors in the past, none since the driver was loaded");
  }

  void tell_repairs() {
    retired("pages.retired_single_bit", api::kNvmlRetiredMultipleSingleBit);
    retired("pages.retired_double_bit", api::kNvmlRetiredDoubleBit);
    int pending = 0;
    if (nvml_.nvmlDeviceGetRetiredPagesPendingStatus &&
        told("nvmlDeviceGetRetiredPagesPendingStatus",
             nvml_.nvmlDeviceGetRetiredPagesPendingStatus(device_, &pending)) &&
        pending == api::kNvmlFeatureEnabled) {
      warn("pages of memory wait to be retired: the device should be reset");
    }
    unsigned correctable = 0, uncorrectable = 0, rows_pending = 0, failed = 0;
    if (!nvml_.nvmlDeviceGetRemappedRows ||
        !told("nvmlDeviceGetRemappedRows",
              nvml_.nvmlDeviceGetRemappedRows(device_, &correctable, &uncorrectable, &rows_pending, &failed)))
      return;
    fact("rows.remapped", fmt::format("{} correctable, {} uncorrectable", correctable, uncorrectable));
    if (rows_pending) warn("rows of memory wait to be remapped: the device should be reset");
    if (failed) fault("a row of memory could not be remapped: the device should be replaced");
  }

 private:
  // The first device's facts have the names that all machines have; the others' begin with their number.
  void fact(const std::string& name, std::string value) {
    report_.fact(ordinal_ ? fmt::format("{}.{}", ordinal_, name) : name, std::move(value));
  }
  void warn(const std::string& text) { report_.warn(fmt::format("device {}: {}", ordinal_, text)); }
  void fault(const std::string& text) { report_.fault(fmt::format("device {}: {}", ordinal_, text)); }

  // Whether the answer holds. "Not supported" is silent, other errors are facts.
  bool told(const char* function, api::NvmlReturn status) {
    if (status != api::kNvmlSuccess && status != api::kNvmlErrorNotSupported)
      fact(std::string("nvml.") + function, error_name(nvml_, status));
    return status == api::kNvmlSuccess;
  }

  template <typename Function, typename... Which>
  void number(const char* name, const Function& function, Which... which) {
    unsigned value = 0;
    if (function && told(function.name, function(device_, which..., &value))) fact(name, std::to_string(value));
  }

  std::optional<unsigned long long> errors(const char* name, int counter) {
    unsigned long long count = 0;
    if (!nvml_.nvmlDeviceGetTotalEccErrors ||
        !told("nvmlDeviceGetTotalEccErrors",
              nvml_.nvmlDeviceGetTotalEccErrors(device_, api::kNvmlMemoryErrorUncorrected, counter, &count))) {
      return std::nullopt;
    }
    fact(name, std::to_string(count));
    return count;
  }

  void retired(const char* name, int cause) {
    // Asked with no room for addresses, it says how many there are; "not enough room" is then no error.
    unsigned count = 0;
    unsigned long long address = 0;
    if (!nvml_.nvmlDeviceGetRetiredPages) return;
    const auto status = nvml_.nvmlDeviceGetRetiredPages(device_, cause, &count, &address);
    if (status == api::kNvmlErrorInsufficientSize || told("nvmlDeviceGetRetiredPages", status))
      fact(name, std::to_string(count));
  }

  Report& report_;
  const Nvml& nvml_;
  api::NvmlDevice device_;
  int ordinal_;
};

}  // namespace

namespace {

void tell_condition(Step& step, DeviceWatch& watch, const DeviceFacts& facts) {
  const auto& nvml = *watch.nvml();
  step.report.step("asking NVML about " + facts.pci_bus_id);
  api::NvmlDevice device = nullptr;
  nvml.call(nvml.nvmlDeviceGetHandleByPciBusId_v2, facts.pci_bus_id.c_str(), &device);
  watch.add(facts);
  Condition condition(step.report, nvml, device, facts.ordinal);
  condition.tell_clocks();
  condition.tell_ecc();
  condition.tell_repairs();
}

}  // namespace

std::string run_device(Step& step) {
  const auto driver = open_driver(step.report, step.folders);
  DeviceWatch watch(step.report, step.folders);
  if (!watch.nvml()) watch.fail_without_nvml();
  if (const auto text = driver_version(watch.nvml()); !text.empty()) step.report.fact("driver", text);
  const int first = step.device.value_or(0), behind = step.device ? first + 1 : device_count(driver);
  std::string names, uuids;
  for (int i = first; i < behind; ++i) {
    const auto facts = device_facts(driver, i);
    tell_condition(step, watch, facts);
    add_once(names, product_name(watch.nvml(), facts));
    uuids += (i > first ? " " : "") + facts.uuid;
  }
  step.report.fact("gpu", names);
  step.report.fact("uuid", uuids);
  watch.finish();
  return fmt::format("clocks, temperature, ECC, retired pages and remapped rows of {} device{}: {}", behind - first,
                     behind - first == 1 ? "" : "s", names);
}

}  // namespace varve::gpu::probe
