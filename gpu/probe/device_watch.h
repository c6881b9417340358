#pragma once
// What NVML says of a device while a step uses it: clocks that were held back, errors (Xid) of the driver. One thread.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/probe/device.h"

namespace varve::gpu::probe {

using Nvml = Api<api::NvmlFunctions>;

// The part of a set of clock event reasons that means less speed than the device was meant to have: heat, power supply,
// a slowdown by hardware. The power limit of the product is no such reason, since products of 70 W are always at it
// under load; nor are idleness and clocks that somebody set.
unsigned long long held_back(unsigned long long reasons);
// The reasons of one sample that count, given those of the one before: a slowdown by hardware without a cause is also
// what devices answer in the moment in which they change clocks, so it counts if it was there twice in a row.
unsigned long long lasting(unsigned long long reasons, unsigned long long before);
std::string reason_names(unsigned long long reasons);  // "thermal slowdown by software, power brake"; "none"

// Watches from the constructor to finish(). sample() between pieces of work, as reasons pass when the device idles.
// Without NVML, which containers without the "utility" capability do not have, and where NVML does not start, it sees
// nothing and the fact "nvml" says why.
class DeviceWatch {
 public:
  DeviceWatch(Report& report, const LibraryFolders& folders);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  void add(const DeviceFacts& device);
  void sample();
  // Tells the report what was seen: throttled, the fact "clock.reasons", a fault or a warning for each error event.
  void finish() noexcept;
  const std::optional<Nvml>& nvml() const { return nvml_; }
  // For a step that is about NVML: throws Skip if it is not there, Error if it does not start.
  [[noreturn]] void fail_without_nvml() const;

 private:
  struct Watched {
    int ordinal = 0;
    api::NvmlDevice device = nullptr;
    unsigned long long reasons = 0;  // all that were met
    unsigned long long before = 0;   // those of the last sample
  };
  void open(const LibraryFolders& folders);
  void collect_events();
  Report& report_;
  std::optional<Nvml> nvml_;
  std::string failure_;  // of NVML's start; "" if it is missing
  std::vector<Watched> devices_;
  api::NvmlEventSet events_ = nullptr;
  bool finished_ = false;
};

}  // namespace varve::gpu::probe
