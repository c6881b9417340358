#pragma once
// libnvidia-ml.so.1: clocks, temperatures, errors and events of a device.
#include "gpu/probe/api/functions.h"

namespace varve::gpu::api {

using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceTag*;
using NvmlEventSet = struct NvmlEventSetTag*;
struct NvmlEventData {
  NvmlDevice device;
  unsigned long long type;
  unsigned long long data;  // of an Xid event: its number
  unsigned gpu_instance;
  unsigned compute_instance;
};

inline constexpr NvmlReturn kNvmlSuccess = 0;
inline constexpr NvmlReturn kNvmlErrorNotSupported = 3;
inline constexpr NvmlReturn kNvmlErrorInsufficientSize = 7;
inline constexpr int kNvmlFeatureEnabled = 1;  // nvmlEnableState_t
inline constexpr int kNvmlTemperatureGpu = 0;
inline constexpr int kNvmlClockSm = 1, kNvmlClockMem = 2;
inline constexpr int kNvmlMemoryErrorUncorrected = 1;
inline constexpr int kNvmlVolatileEcc = 0, kNvmlAggregateEcc = 1;
inline constexpr int kNvmlRetiredMultipleSingleBit = 0, kNvmlRetiredDoubleBit = 1;
inline constexpr unsigned long long kNvmlEventDoubleBitEcc = 0x2, kNvmlEventXidCritical = 0x8;
// Why clocks are lower than they could be, a set of bits.
inline constexpr unsigned long long kNvmlReasonGpuIdle = 0x1, kNvmlReasonApplicationClocks = 0x2,
                                    kNvmlReasonSwPowerCap = 0x4, kNvmlReasonHwSlowdown = 0x8,
                                    kNvmlReasonSyncBoost = 0x10, kNvmlReasonSwThermal = 0x20,
                                    kNvmlReasonHwThermal = 0x40, kNvmlReasonHwPowerBrake = 0x80,
                                    kNvmlReasonDisplayClocks = 0x100;
inline constexpr unsigned kNvmlNameBytes = 96,
                          kNvmlVersionBytes = 80;  // the sizes of the newest interface

#define VARVE_NVML_REQUIRED(F)                                                        \
  F(nvmlInit_v2, NvmlReturn)                                                          \
  F(nvmlShutdown, NvmlReturn)                                                         \
  F(nvmlErrorString, const char*, NvmlReturn error)                                   \
  F(nvmlSystemGetDriverVersion, NvmlReturn, char* version, unsigned size)             \
  F(nvmlDeviceGetHandleByPciBusId_v2, NvmlReturn, const char* id, NvmlDevice* device) \
  F(nvmlDeviceGetName, NvmlReturn, NvmlDevice device, char* name, unsigned size)

// Whatever a driver or a device lacks is left out of the facts.
#define VARVE_NVML_OPTIONAL(F)                                                                                \
  F(nvmlDeviceGetClockInfo, NvmlReturn, NvmlDevice device, int type, unsigned* mhz)                           \
  F(nvmlDeviceGetMaxClockInfo, NvmlReturn, NvmlDevice device, int type, unsigned* mhz)                        \
  F(nvmlDeviceGetTemperature, NvmlReturn, NvmlDevice device, int sensor, unsigned* celsius)                   \
  F(nvmlDeviceGetPowerUsage, NvmlReturn, NvmlDevice device, unsigned* milliwatts)                             \
  F(nvmlDeviceGetEnforcedPowerLimit, NvmlReturn, NvmlDevice device, unsigned* milliwatts)                     \
  F(nvmlDeviceGetPersistenceMode, NvmlReturn, NvmlDevice device, int* mode)                                   \
  F(nvmlDeviceGetEccMode, NvmlReturn, NvmlDevice device, int* current, int* pending)                          \
  F(nvmlDeviceGetTotalEccErrors, NvmlReturn, NvmlDevice device, int error_type, int counter_type,             \
    unsigned long long* count)                                                                                \
  F(nvmlDeviceGetRetiredPages, NvmlReturn, NvmlDevice device, int cause, unsigned* count,                     \
    unsigned long long* addresses)                                                                            \
  F(nvmlDeviceGetRetiredPagesPendingStatus, NvmlReturn, NvmlDevice device, int* pending)                      \
  F(nvmlDeviceGetRemappedRows, NvmlReturn, NvmlDevice device, unsigned* correctable, unsigned* uncorrectable, \
    unsigned* pending, unsigned* failed)                                                                      \
  F(nvmlDeviceGetCurrentClocksEventReasons, NvmlReturn, NvmlDevice device,                                    \
    unsigned long long* reasons) /* CUDA 12.2 */                                                              \
  F(nvmlDeviceGetCurrentClocksThrottleReasons, NvmlReturn, NvmlDevice device,                                 \
    unsigned long long* reasons) /* before, and still */                                                      \
  F(nvmlEventSetCreate, NvmlReturn, NvmlEventSet* set)                                                        \
  F(nvmlDeviceRegisterEvents, NvmlReturn, NvmlDevice device, unsigned long long types, NvmlEventSet set)      \
  F(nvmlEventSetWait_v2, NvmlReturn, NvmlEventSet set, NvmlEventData* data, unsigned timeout_ms)              \
  F(nvmlEventSetFree, NvmlReturn, NvmlEventSet set)

VARVE_API_STRUCT(NvmlFunctions, VARVE_NVML_REQUIRED, VARVE_NVML_OPTIONAL)

}  // namespace varve::gpu::api
