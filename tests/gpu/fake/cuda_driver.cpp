// libcuda.so.1: devices, contexts, memory, modules and streams. Everything is done at once, on the host; of kernels it
// knows axpy and sum by name.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidPtx = 218,
  kNotFound = 500,
};

struct Context {
  int device = 0;
};
constexpr std::size_t kDeviceMemory = std::size_t{16} << 30;
bool initialized = false;                 // NOLINT: as the driver is, one for the process
thread_local Context* current = nullptr;  // NOLINT: the API's current context is one per thread
std::vector<Context>& contexts() {        // the primary ones, one per device
  static std::vector<Context> all(std::size_t(number("devices", 1)));
  return all;
}
std::mutex memory_lock;                             // NOLINT
std::map<std::uintptr_t, std::size_t> allocations;  // NOLINT: device memory that is taken, by host address

bool is_known(int device) { return device >= 0 && device < int(contexts().size()); }

// The range lies in one allocation, else this is an illegal address.
void* checked(unsigned long long device, std::size_t bytes, const char* call) {
  auto* const host = on_device(reinterpret_cast<char*>(device), call);  // NOLINT(performance-no-int-to-ptr)
  const std::lock_guard lock(memory_lock);
  const auto begin = reinterpret_cast<std::uintptr_t>(host);
  auto found = allocations.upper_bound(begin);
  if (found == allocations.begin()) fault(std::string(call) + ": no such device memory");
  --found;
  if (begin + bytes > found->first + found->second) fault(std::string(call) + ": behind the end of its device memory");
  return host;
}

int copy(void* to, const void* from, std::size_t bytes) {
  const auto how = wrong("copy");
  if (how == Wrong::kNo)
    std::memcpy(to, from, bytes);
  else
    give(how, static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes);
  return kSuccess;
}

// A kernel as a module has it: by what stands behind ".entry" in its text.
struct Function {
  std::string_view name;
  void (*run)(std::size_t threads, void* const* parameters, Wrong how);
};
using Module = std::vector<const Function*>;

template <typename T>
T parameter(void* const* parameters, std::size_t i) {
  T value;
  std::memcpy(&value, on_host(parameters[i], "a kernel's parameter"), sizeof value);
  return value;
}

// What gpu/probe/kernels/axpy.cu computes.
void run_axpy(std::size_t threads, void* const* parameters, Wrong how) {
  const auto a = parameter<float>(parameters, 0);
  const auto count = std::min<std::size_t>(parameter<unsigned>(parameters, 3), threads);
  const auto bytes = count * sizeof(float);
  const auto* const x = static_cast<const float*>(checked(parameter<unsigned long long>(parameters, 1), bytes, "axpy"));
  auto* const y = static_cast<float*>(checked(parameter<unsigned long long>(parameters, 2), bytes, "axpy"));
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = std::fma(a, x[i], y[i]);
  give(how, y, result.data(), count);
}

// What gpu/probe/kernels/sum.cu computes: as many threads as there are take all values among them.
void run_sum(std::size_t, void* const* parameters, Wrong how) {
  const auto count = parameter<unsigned>(parameters, 1);
  const auto* const values = static_cast<const unsigned*>(
      checked(parameter<unsigned long long>(parameters, 0), count * sizeof(unsigned), "sum"));
  auto* const total = static_cast<unsigned long long*>(
      checked(parameter<unsigned long long>(parameters, 2), sizeof(unsigned long long), "sum"));
  const auto result = std::accumulate(values, values + count, *total);
  give(how, total, &result, 1);
}

constexpr Function kFunctions[] = {{"axpy", run_axpy}, {"sum", run_sum}};

// What a text of PTX declares. Empty, with the reason in `why`, where it is none, has other kernels or is for a newer
// device.
Module functions_in(std::string_view text, std::string& why) {
  const auto target = text.find(".target sm_");
  if (text.find(".version") == text.npos || target == text.npos) return why = "no PTX", Module();
  const auto sm = std::atoi(text.data() + target + 11);
  if (sm > number("sm", 90)) return why = "for sm_" + std::to_string(sm) + ", which is newer", Module();
  Module found;
  for (const auto& function : kFunctions)
    if (text.find(".entry " + std::string(function.name) + "(") != text.npos) found.push_back(&function);
  if (found.empty()) why = "kernels that the fake driver does not know, or none";
  return found;
}

// What each call does before anything else: behaviours, then the order of calls that the API prescribes.
#define ENTER(call)                               \
  if (const int code = enter(#call)) return code; \
  if (!initialized) return kNotInitialized
#define ENTER_IN_CONTEXT(call) \
  ENTER(call);                 \
  if (!current) return kInvalidContext

}  // namespace

FAKE_API int cuInit(unsigned flags) {
  if (const int code = enter("cuInit")) return code;
  if (flags) return kInvalidValue;
  if (contexts().empty()) return kNoDevice;
  initialized = true;
  return kSuccess;
}

FAKE_VERSION(cuDriverGetVersion, 12080)

FAKE_API int cuGetErrorName(int code, const char** name) {
  static const std::map<int, const char*> kNames = {{0, "CUDA_SUCCESS"},
                                                    {1, "CUDA_ERROR_INVALID_VALUE"},
                                                    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                    {3, "CUDA_ERROR_NOT_INITIALIZED"},
                                                    {100, "CUDA_ERROR_NO_DEVICE"},
                                                    {101, "CUDA_ERROR_INVALID_DEVICE"},
                                                    {200, "CUDA_ERROR_INVALID_IMAGE"},
                                                    {201, "CUDA_ERROR_INVALID_CONTEXT"},
                                                    {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
                                                    {218, "CUDA_ERROR_INVALID_PTX"},
                                                    {400, "CUDA_ERROR_INVALID_HANDLE"},
                                                    {500, "CUDA_ERROR_NOT_FOUND"},
                                                    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                    {719, "CUDA_ERROR_LAUNCH_FAILED"},
                                                    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                                                    {999, "CUDA_ERROR_UNKNOWN"}};
  const auto found = kNames.find(code);
  *name = found == kNames.end() ? nullptr : found->second;
  return found == kNames.end() ? kInvalidValue : kSuccess;
}

FAKE_API int cuGetErrorString(int code, const char** text) {
  if (const int result = cuGetErrorName(code, text)) return result;
  *text = code == kSuccess    ? "no error"
          : code == kNoDevice ? "no CUDA-capable device is detected"
                              : "an error of the fake driver";
  return kSuccess;
}

FAKE_API int cuDeviceGetCount(int* count) {
  ENTER(cuDeviceGetCount);
  *count = int(contexts().size());
  return kSuccess;
}

FAKE_API int cuDeviceGet(int* device, int ordinal) {
  ENTER(cuDeviceGet);
  if (!is_known(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

FAKE_API int cuDeviceGetName(char* name, int length, int device) {
  ENTER(cuDeviceGetName);
  if (!is_known(device)) return kInvalidDevice;
  std::snprintf(name, std::size_t(length), "%s", text("product", "NVIDIA Fake 9000").c_str());
  return kSuccess;
}

FAKE_API int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  ENTER(cuDeviceGetUuid_v2);
  if (!is_known(device)) return kInvalidDevice;
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i == 15 ? device : 0x10 + i);
  return kSuccess;
}
FAKE_API int cuDeviceGetUuid(unsigned char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

FAKE_API int cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  ENTER(cuDeviceTotalMem_v2);
  if (!is_known(device)) return kInvalidDevice;
  *bytes = kDeviceMemory;
  return kSuccess;
}

FAKE_API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER(cuDeviceGetAttribute);
  if (!is_known(device)) return kInvalidDevice;
  const auto sm = int(number("sm", 90));
  if (attribute != 75 && attribute != 76) return kInvalidValue;
  *value = attribute == 75 ? sm / 10 : sm % 10;
  return kSuccess;
}

FAKE_API int cuDeviceGetPCIBusId(char* id, int length, int device) {
  ENTER(cuDeviceGetPCIBusId);
  if (!is_known(device)) return kInvalidDevice;
  std::snprintf(id, std::size_t(length), "0000:%02X:00.0", 0x3B + device);
  return kSuccess;
}

FAKE_API int cuDevicePrimaryCtxRetain(Context** context, int device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!is_known(device)) return kInvalidDevice;
  *context = &contexts()[std::size_t(device)];
  (*context)->device = device;
  return kSuccess;
}

FAKE_API int cuDevicePrimaryCtxRelease_v2(int device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  return is_known(device) ? kSuccess : kInvalidDevice;
}

FAKE_API int cuCtxSetCurrent(Context* context) {
  ENTER(cuCtxSetCurrent);
  current = context;
  return kSuccess;
}

FAKE_API int cuCtxSynchronize() {
  ENTER_IN_CONTEXT(cuCtxSynchronize);
  return kSuccess;
}

FAKE_API int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  ENTER_IN_CONTEXT(cuMemGetInfo_v2);
  const std::lock_guard lock(memory_lock);
  std::size_t used = 0;
  for (const auto& [address, bytes] : allocations) used += bytes;
  *total = kDeviceMemory;
  *free_bytes = kDeviceMemory - std::min(used, kDeviceMemory);
  return kSuccess;
}

FAKE_API int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  ENTER_IN_CONTEXT(cuMemAlloc_v2);
  if (!bytes) return kInvalidValue;
  if (bytes > kDeviceMemory) return kOutOfMemory;
  void* const host = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!host) return kOutOfMemory;
  std::memset(host, 0xA5, bytes);  // a device's memory is not cleared either
  const std::lock_guard lock(memory_lock);
  allocations[reinterpret_cast<std::uintptr_t>(host)] = bytes;
  *address = to_device(host);
  return kSuccess;
}

FAKE_API int cuMemFree_v2(unsigned long long address) {
  ENTER_IN_CONTEXT(cuMemFree_v2);
  if (!address) return kSuccess;
  void* const host = checked(address, 1, "cuMemFree_v2");
  const std::lock_guard lock(memory_lock);
  if (!allocations.erase(reinterpret_cast<std::uintptr_t>(host))) return kInvalidValue;
  free(host);  // NOLINT(cppcoreguidelines-no-malloc): the API's
  return kSuccess;
}

FAKE_API int cuMemAllocHost_v2(void** address, std::size_t bytes) {
  ENTER_IN_CONTEXT(cuMemAllocHost_v2);
  *address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *address ? kSuccess : kOutOfMemory;
}

FAKE_API int cuMemFreeHost(void* address) {
  ENTER_IN_CONTEXT(cuMemFreeHost);
  free(address);  // NOLINT(cppcoreguidelines-no-malloc)
  return kSuccess;
}

FAKE_API int cuMemcpyHtoD_v2(unsigned long long to, const void* from, std::size_t bytes) {
  ENTER_IN_CONTEXT(cuMemcpyHtoD_v2);
  return copy(checked(to, bytes, "cuMemcpyHtoD_v2"), on_host(from, "cuMemcpyHtoD_v2"), bytes);
}

FAKE_API int cuMemcpyDtoH_v2(void* to, unsigned long long from, std::size_t bytes) {
  ENTER_IN_CONTEXT(cuMemcpyDtoH_v2);
  return copy(on_host(to, "cuMemcpyDtoH_v2"), checked(from, bytes, "cuMemcpyDtoH_v2"), bytes);
}

FAKE_API int cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, std::size_t bytes) {
  ENTER_IN_CONTEXT(cuMemcpyDtoD_v2);
  return copy(checked(to, bytes, "cuMemcpyDtoD_v2"), checked(from, bytes, "cuMemcpyDtoD_v2"), bytes);
}

FAKE_API int cuMemsetD8_v2(unsigned long long to, unsigned char value, std::size_t count) {
  ENTER_IN_CONTEXT(cuMemsetD8_v2);
  std::memset(checked(to, count, "cuMemsetD8_v2"), value, count);
  return kSuccess;
}

// Option 5 is a buffer for the compiler's errors, 6 its size, which stands in the pointer itself.
static void tell(const std::string& why, unsigned count, const int* options, void** values) {
  char* buffer = nullptr;
  std::size_t size = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == 5) buffer = static_cast<char*>(values[i]);
    if (options[i] == 6) size = reinterpret_cast<std::uintptr_t>(values[i]) & 0xFFFF'FFFF;
  }
  if (buffer && size) std::snprintf(buffer, size, "ptxas fatal   : %s", why.c_str());
}

FAKE_API int cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* options, void** values) {
  ENTER_IN_CONTEXT(cuModuleLoadDataEx);
  std::string_view text = on_host(static_cast<const char*>(image), "cuModuleLoadDataEx");
  constexpr std::size_t kCubinHead = 64;  // as the fake nvrtc writes it
  if (text.starts_with('\x7f')) {
    if (text.size() < kCubinHead || !text.substr(32).starts_with("of the fake compiler")) return kInvalidImage;
    text.remove_prefix(kCubinHead);
  }
  std::string why;
  auto functions = functions_in(text, why);
  if (functions.empty()) {
    tell(why, count, options, values);
    return kInvalidPtx;
  }
  *module = new Module(std::move(functions));
  return kSuccess;
}

FAKE_API int cuModuleUnload(Module* module) {
  ENTER_IN_CONTEXT(cuModuleUnload);
  delete module;
  return kSuccess;
}

FAKE_API int cuModuleGetFunction(const Function** function, Module* module, const char* name) {
  ENTER_IN_CONTEXT(cuModuleGetFunction);
  const auto found = std::ranges::find(*module, std::string_view(name), &Function::name);
  if (found == module->end()) return kNotFound;
  *function = *found;
  return kSuccess;
}

FAKE_API int cuLaunchKernel(const Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                            void** parameters, void** extra) {
  ENTER_IN_CONTEXT(cuLaunchKernel);
  (void)stream;
  if (extra || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z ||
      block_x * block_y * block_z > 1024 || block_z > 64 || shared_bytes > 49152)
    return kInvalidValue;
  const auto how = wrong("kernel");
  if (how == Wrong::kIdle) return kSuccess;
  function->run(std::size_t(grid_x) * grid_y * grid_z * block_x * block_y * block_z, parameters, how);
  return kSuccess;
}

FAKE_API int cuStreamCreate(void** stream, unsigned) {
  ENTER_IN_CONTEXT(cuStreamCreate);
  *stream = new int(0);
  return kSuccess;
}

FAKE_API int cuStreamSynchronize(void*) {
  ENTER_IN_CONTEXT(cuStreamSynchronize);
  return kSuccess;
}

FAKE_API int cuStreamDestroy_v2(void* stream) {
  ENTER_IN_CONTEXT(cuStreamDestroy_v2);
  delete static_cast<int*>(stream);
  return kSuccess;
}

}  // namespace varve::gpu::fake
