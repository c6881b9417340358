// libnvidia-ml.so.1: what the driver says of a device's clocks, temperature and errors.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kTimeout = 10
};

struct Device {
  int index = 0;
};
struct EventData {  // nvmlEventData_t
  Device* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
struct EventSet {
  std::vector<std::pair<Device*, unsigned long long>> registered;
  bool told = false;
};
constexpr unsigned long long kXidEvent = 8;

bool initialized = false;  // NOLINT: of the library, as in the real one
std::vector<Device>& devices() {
  static std::vector<Device> all = [] {
    std::vector<Device> made(std::size_t(number("devices", 1)));
    for (std::size_t i = 0; i < made.size(); ++i) made[i].index = int(i);
    return made;
  }();
  return all;
}

int give_text(char* to, unsigned size, const std::string& value) {
  if (value.size() + 1 > size) return kInsufficientSize;
  std::memcpy(to, value.c_str(), value.size() + 1);
  return kSuccess;
}

// With sick=N only that device has what throttle, ecc, remap and xid say.
bool is_sick(const Device* device) { return number("sick", device->index) == device->index; }
long of_sick(const Device* device, const char* name, long otherwise) {
  return is_sick(device) ? number(name, otherwise) : otherwise;
}

bool is_known(const Device* device) {
  return std::any_of(devices().begin(), devices().end(), [&](const Device& known) { return &known == device; });
}

#define ENTER(call)                               \
  if (const int code = enter(#call)) return code; \
  if (!initialized) return kUninitialized
#define ENTER_FOR(call, device) \
  ENTER(call);                  \
  if (!is_known(device)) return kInvalidArgument

}  // namespace

FAKE_API int nvmlInit_v2() {
  if (const int code = enter("nvmlInit_v2")) return code;
  initialized = true;
  return kSuccess;
}

FAKE_API int nvmlShutdown() {
  ENTER(nvmlShutdown);
  initialized = false;
  return kSuccess;
}

FAKE_API const char* nvmlErrorString(int code) {
  static const std::map<int, const char*> kTexts = {{0, "Success"},
                                                    {1, "Uninitialized"},
                                                    {2, "Invalid Argument"},
                                                    {3, "Not Supported"},
                                                    {4, "Insufficient Permissions"},
                                                    {6, "Not Found"},
                                                    {9, "Driver Not Loaded"},
                                                    {10, "Timeout"},
                                                    {15, "GPU is lost"},
                                                    {18, "Driver/library version mismatch"}};
  const auto found = kTexts.find(code);
  return found == kTexts.end() ? "Unknown Error" : found->second;
}

FAKE_API int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  ENTER(nvmlSystemGetDriverVersion);
  return give_text(version, size, text("driver", "580.95.05"));
}

FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device** device) {
  ENTER(nvmlDeviceGetHandleByPciBusId_v2);
  unsigned domain = 0, bus = 0;
  if (std::sscanf(id, "%x:%x:", &domain, &bus) != 2) return kInvalidArgument;
  if (bus < 0x3B || bus - 0x3B >= devices().size()) return kNotFound;
  *device = &devices()[bus - 0x3B];
  return kSuccess;
}

FAKE_API int nvmlDeviceGetName(Device* device, char* name, unsigned size) {
  ENTER_FOR(nvmlDeviceGetName, device);
  return give_text(name, size, text("product", "NVIDIA Fake 9000"));
}

FAKE_API int nvmlDeviceGetClockInfo(Device* device, int type, unsigned* mhz) {
  ENTER_FOR(nvmlDeviceGetClockInfo, device);
  *mhz = type == 2 ? 2619 : 1980;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetMaxClockInfo(Device* device, int type, unsigned* mhz) {
  ENTER_FOR(nvmlDeviceGetMaxClockInfo, device);
  *mhz = type == 2 ? 2619 : 1980;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetTemperature(Device* device, int sensor, unsigned* celsius) {
  ENTER_FOR(nvmlDeviceGetTemperature, device);
  *celsius = 41;
  return sensor == 0 ? kSuccess : kInvalidArgument;
}

FAKE_API int nvmlDeviceGetPowerUsage(Device* device, unsigned* milliwatts) {
  ENTER_FOR(nvmlDeviceGetPowerUsage, device);
  *milliwatts = 118'000;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetEnforcedPowerLimit(Device* device, unsigned* milliwatts) {
  ENTER_FOR(nvmlDeviceGetEnforcedPowerLimit, device);
  *milliwatts = 700'000;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetPersistenceMode(Device* device, int* mode) {
  ENTER_FOR(nvmlDeviceGetPersistenceMode, device);
  *mode = 1;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetEccMode(Device* device, int* now, int* pending) {
  ENTER_FOR(nvmlDeviceGetEccMode, device);
  *now = *pending = 1;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetTotalEccErrors(Device* device, int error_type, int counter_type, unsigned long long* count) {
  ENTER_FOR(nvmlDeviceGetTotalEccErrors, device);
  if (error_type < 0 || error_type > 1 || counter_type < 0 || counter_type > 1) return kInvalidArgument;
  *count = error_type == 1 ? static_cast<unsigned long long>(of_sick(device, "ecc", 0)) : 0;
  return kSuccess;
}

FAKE_API int nvmlDeviceGetRetiredPages(Device* device, int, unsigned*, unsigned long long*) {
  ENTER_FOR(nvmlDeviceGetRetiredPages, device);
  return kNotSupported;  // as newer devices, which remap rows
}

FAKE_API int nvmlDeviceGetRetiredPagesPendingStatus(Device* device, int*) {
  ENTER_FOR(nvmlDeviceGetRetiredPagesPendingStatus, device);
  return kNotSupported;
}

FAKE_API int nvmlDeviceGetRemappedRows(Device* device, unsigned* correctable, unsigned* uncorrectable,
                                       unsigned* pending, unsigned* failed) {
  ENTER_FOR(nvmlDeviceGetRemappedRows, device);
  const auto how = is_sick(device) ? text("remap", "") : "";
  *correctable = 0;
  *uncorrectable = how.empty() ? 0 : 1;
  *pending = how == "pending";
  *failed = how == "failed";
  return kSuccess;
}

FAKE_API int nvmlDeviceGetCurrentClocksEventReasons(Device* device, unsigned long long* reasons) {
  ENTER_FOR(nvmlDeviceGetCurrentClocksEventReasons, device);
  *reasons = static_cast<unsigned long long>(of_sick(device, "throttle", 0));
  return kSuccess;
}

FAKE_API int nvmlDeviceGetCurrentClocksThrottleReasons(Device* device, unsigned long long* reasons) {
  ENTER_FOR(nvmlDeviceGetCurrentClocksThrottleReasons, device);
  *reasons = static_cast<unsigned long long>(of_sick(device, "throttle", 0));
  return kSuccess;
}

FAKE_API int nvmlEventSetCreate(EventSet** set) {
  ENTER(nvmlEventSetCreate);
  *set = new EventSet;
  return kSuccess;
}

FAKE_API int nvmlDeviceRegisterEvents(Device* device, unsigned long long types, EventSet* set) {
  ENTER_FOR(nvmlDeviceRegisterEvents, device);
  set->registered.emplace_back(device, types);
  return kSuccess;
}

// An Xid comes once, to who asked for such events before.
FAKE_API int nvmlEventSetWait_v2(EventSet* set, EventData* data, unsigned timeout_ms) {
  ENTER(nvmlEventSetWait_v2);
  const auto xid = number("xid", 0);
  for (const auto& [device, types] : set->registered) {
    if (!xid || set->told || !(types & kXidEvent) || !is_sick(device)) continue;
    set->told = true;
    *data = {.device = device,
             .type = kXidEvent,
             .data = static_cast<unsigned long long>(xid),
             .gpu_instance = ~0u,
             .compute_instance = ~0u};
    return kSuccess;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms));
  return kTimeout;
}

FAKE_API int nvmlEventSetFree(EventSet* set) {
  ENTER(nvmlEventSetFree);
  delete set;
  return kSuccess;
}

}  // namespace varve::gpu::fake
