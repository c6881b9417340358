#include "gpu/probe/device_watch.h"

#include <algorithm>
#include <utility>

namespace varve::gpu::probe {
namespace {

constexpr unsigned long long kHeldBack =
    api::kNvmlReasonHwSlowdown | api::kNvmlReasonSwThermal | api::kNvmlReasonHwThermal | api::kNvmlReasonHwPowerBrake;
// Xids that tell of cleaning up after another process, of a repair that was noted, of corrected errors: nothing that
// this step met.
constexpr unsigned long long kXidNotes[] = {45, 63, 92, 154};
constexpr int kMaxEvents = 64;  // that one step reports

constexpr std::pair<unsigned long long, const char*> kReasons[] = {
    {api::kNvmlReasonGpuIdle, "idle"},
    {api::kNvmlReasonApplicationClocks, "application clocks"},
    {api::kNvmlReasonSwPowerCap, "power limit"},
    {api::kNvmlReasonHwSlowdown, "slowdown by hardware"},
    {api::kNvmlReasonSyncBoost, "sync boost"},
    {api::kNvmlReasonSwThermal, "thermal slowdown by software"},
    {api::kNvmlReasonHwThermal, "thermal slowdown by hardware"},
    {api::kNvmlReasonHwPowerBrake, "power brake"},
    {api::kNvmlReasonDisplayClocks, "display clocks"},
};

}  // namespace

unsigned long long held_back(unsigned long long reasons) { return reasons & kHeldBack; }

unsigned long long lasting(unsigned long long reasons, unsigned long long before) {
  constexpr auto kCauses = api::kNvmlReasonHwThermal | api::kNvmlReasonHwPowerBrake;
  if ((reasons & api::kNvmlReasonHwSlowdown) && !(reasons & kCauses) && !(before & api::kNvmlReasonHwSlowdown))
    reasons &= ~api::kNvmlReasonHwSlowdown;
  return reasons;
}

std::string reason_names(unsigned long long reasons) {
  std::string names;
  for (const auto& [bit, name] : kReasons) {
    if (!(reasons & bit)) continue;
    names += (names.empty() ? "" : ", ") + std::string(name);
    reasons &= ~bit;
  }
  if (reasons) names += fmt::format("{}{:#x}", names.empty() ? "" : ", ", reasons);
  return names.empty() ? "none" : names;
}

DeviceWatch::DeviceWatch(Report& report, const LibraryFolders& folders) : report_(report) {
  try {
    open(folders);
  } catch (const Error& error) {
    nvml_.reset();
    failure_ = error.what();
    report_.fact("nvml", failure_);
  }
  if (nvml_ && nvml_->nvmlEventSetCreate && nvml_->nvmlDeviceRegisterEvents && nvml_->nvmlEventSetWait_v2 &&
      nvml_->nvmlEventSetCreate(&events_) != api::kNvmlSuccess)
    events_ = nullptr;
}

void DeviceWatch::open(const LibraryFolders& folders) {
  report_.step("opening libnvidia-ml.so.1");
  auto library = Library::find({"libnvidia-ml.so.1"}, folders);
  if (!library) {
    report_.fact("nvml", "libnvidia-ml.so.1 is not found");
    return;
  }
  nvml_.emplace(std::move(*library));
  report_.step("nvmlInit_v2");
  nvml_->call(nvml_->nvmlInit_v2);
}

void DeviceWatch::fail_without_nvml() const {
  if (failure_.empty())
    fail<Skip>("libnvidia-ml.so.1 is not found: clocks, temperatures and errors of the device cannot be asked for");
  fail<Error>("{}", failure_);
}

DeviceWatch::~DeviceWatch() {
  finish();
  if (!nvml_) return;
  if (events_ && nvml_->nvmlEventSetFree) nvml_->nvmlEventSetFree(events_);
  nvml_->nvmlShutdown();
}

void DeviceWatch::add(const DeviceFacts& device) {
  if (!nvml_) return;
  // By its place on the bus: NVML counts devices in another order than CUDA, and those that CUDA was told not to see
  // too.
  Watched watched{device.ordinal, nullptr, 0};
  if (const auto status = nvml_->nvmlDeviceGetHandleByPciBusId_v2(device.pci_bus_id.c_str(), &watched.device)) {
    report_.fact("nvml", fmt::format("nvmlDeviceGetHandleByPciBusId_v2 of {} returned {}", device.pci_bus_id,
                                     error_name(*nvml_, status)));
    return;
  }
  // Not all devices and not all users may: then there are no events to be seen.
  if (events_)
    nvml_->nvmlDeviceRegisterEvents(watched.device, api::kNvmlEventXidCritical | api::kNvmlEventDoubleBitEcc, events_);
  devices_.push_back(watched);
  sample();
}

void DeviceWatch::sample() {
  if (!nvml_) return;
  const auto& ask = nvml_->nvmlDeviceGetCurrentClocksEventReasons ? nvml_->nvmlDeviceGetCurrentClocksEventReasons
                                                                  : nvml_->nvmlDeviceGetCurrentClocksThrottleReasons;
  if (!ask) return;
  for (auto& watched : devices_) {
    unsigned long long reasons = 0;
    if (ask(watched.device, &reasons) != api::kNvmlSuccess) continue;
    watched.reasons |= lasting(reasons, watched.before);
    watched.before = reasons;
  }
}

void DeviceWatch::finish() noexcept {
  if (finished_ || !nvml_) return;
  finished_ = true;
  try {
    sample();
    unsigned long long reasons = 0;
    for (const auto& watched : devices_) {
      reasons |= watched.reasons;
      if (!held_back(watched.reasons)) continue;
      report_.set_throttled();
      report_.warn(fmt::format("device {}: clocks were held back: {}", watched.ordinal,
                               reason_names(held_back(watched.reasons))));
    }
    if (!devices_.empty()) report_.fact("clock.reasons", reason_names(reasons));
    collect_events();
  } catch (const std::exception&) {
    // Out of memory at the end of a step: what the step itself found is worth more.
  }
}

void DeviceWatch::collect_events() {
  if (!events_) return;
  std::set<std::string> faults, notes;
  for (int i = 0; i < kMaxEvents; ++i) {
    api::NvmlEventData event{};
    if (nvml_->nvmlEventSetWait_v2(events_, &event, 0) != api::kNvmlSuccess)
      break;  // most often: timed out, there is none
    const auto watched = std::ranges::find(devices_, event.device, &Watched::device);
    const auto where = watched == devices_.end() ? std::string() : fmt::format("device {}: ", watched->ordinal);
    if (event.type & api::kNvmlEventXidCritical) {
      auto& kind = std::ranges::find(kXidNotes, event.data) == std::end(kXidNotes) ? faults : notes;
      kind.insert(fmt::format("{}the driver reported Xid {} during this step", where, event.data));
    }
    if (event.type & api::kNvmlEventDoubleBitEcc)
      faults.insert(where + "the driver reported an uncorrected ECC error during this step");
  }
  for (const auto& what : faults) report_.fault(what);
  for (const auto& what : notes) report_.warn(what);
}

}  // namespace varve::gpu::probe
