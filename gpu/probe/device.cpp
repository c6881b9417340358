#include "gpu/probe/device.h"

#include <unistd.h>

#include <array>
#include <chrono>

namespace varve::gpu::probe {
namespace {

constexpr api::CuResult kStubLibrary = 34;  // what the toolkit's libcuda.so for linking answers to everything

// Where a kernel driver runs but its library is missing, the session was started without it; that is worth knowing.
std::string device_hint() {
  return ::access("/dev/nvidiactl", F_OK) == 0
             ? ", although /dev/nvidiactl is there: the driver's files of this machine were not brought into this place"
             : "";
}

Library open_driver_library(const LibraryFolders& folders) {
  try {
    if (auto library = Library::find({"libcuda.so.1"}, folders)) return std::move(*library);
  } catch (const Error& error) {
    // Images that once ran with a GPU have empty files where the driver's were mounted.
    if (std::string_view(error.what()).find("file too short") == std::string_view::npos) throw;
    fail<Skip>("no driver: {}{}", error.what(), device_hint());
  }
  fail<Skip>("no driver: libcuda.so.1 is not found by the loader{}", device_hint());
}

std::string uuid_of(const Driver& driver, api::CuDevice device) {
  api::CuUuid uuid{};
  if (driver.cuDeviceGetUuid_v2) {
    driver.call(driver.cuDeviceGetUuid_v2, &uuid, device);
  } else if (driver.cuDeviceGetUuid) {
    driver.call(driver.cuDeviceGetUuid, &uuid, device);
  } else {
    return "";
  }
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

int attribute(const Driver& driver, int which, api::CuDevice device) {
  int value = 0;
  driver.call(driver.cuDeviceGetAttribute, &value, which, device);
  return value;
}

}  // namespace

Driver open_driver(Report& report, const LibraryFolders& folders) {
  report.step("opening libcuda.so.1");
  Driver driver(open_driver_library(folders));
  report.fact("lib." + driver.library.name(), driver.library.path());
  if (driver.library.path().find("/stubs/") != std::string::npos)
    report.warn(driver.library.path() + " is the toolkit's library for linking, and in the way of the driver's");
  report.step("cuInit");
  const auto status = driver.cuInit(0);
  if (status == api::kCudaErrorNoDevice)
    fail<Skip>("no device: cuInit returned {} ({}){}", error_name(driver, status), driver.library.path(),
               device_hint());
  if (status == kStubLibrary)
    fail<Skip>("no driver: {} is the toolkit's library for linking{}", driver.library.path(), device_hint());
  if (status != api::kCudaSuccess)
    fail<Error>("cuInit returned {} ({})", error_name(driver, status), driver.library.path());
  if (device_count(driver) == 0) fail<Skip>("no device: {} counts none{}", driver.library.path(), device_hint());
  return driver;
}

int device_count(const Driver& driver) {
  int count = 0;
  driver.call(driver.cuDeviceGetCount, &count);
  return count;
}

DeviceFacts device_facts(const Driver& driver, int ordinal) {
  const int count = device_count(driver);
  if (ordinal < 0 || ordinal >= count) fail<Error>("there is no device {}: the driver counts {}", ordinal, count);
  DeviceFacts facts;
  facts.ordinal = ordinal;
  driver.call(driver.cuDeviceGet, &facts.handle, ordinal);
  std::array<char, 256> text{};
  driver.call(driver.cuDeviceGetName, text.data(), static_cast<int>(text.size() - 1), facts.handle);
  facts.name = text.data();
  text.fill('\0');
  driver.call(driver.cuDeviceGetPCIBusId, text.data(), static_cast<int>(text.size() - 1), facts.handle);
  facts.pci_bus_id = text.data();
  facts.uuid = uuid_of(driver, facts.handle);
  facts.major = attribute(driver, api::kCuDeviceComputeCapabilityMajor, facts.handle);
  facts.minor = attribute(driver, api::kCuDeviceComputeCapabilityMinor, facts.handle);
  driver.call(driver.cuDeviceTotalMem_v2, &facts.memory_bytes, facts.handle);
  return facts;
}

Device::Device(const Driver& driver, int ordinal) : driver_(driver), facts_(device_facts(driver, ordinal)) {
  const auto begin = std::chrono::steady_clock::now();
  driver_.call(driver_.cuDevicePrimaryCtxRetain, &context_, facts_.handle);
  context_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  try {
    make_current();
  } catch (...) {
    driver_.cuDevicePrimaryCtxRelease_v2(facts_.handle);
    throw;
  }
}

Device::~Device() { driver_.cuDevicePrimaryCtxRelease_v2(facts_.handle); }

void Device::make_current() const { driver_.call(driver_.cuCtxSetCurrent, context_); }

void Device::synchronize() const { driver_.call(driver_.cuCtxSynchronize); }

DeviceMemory::DeviceMemory(const Driver& driver, std::size_t bytes) : driver_(&driver), bytes_(bytes) {
  if (const auto status = driver.cuMemAlloc_v2(&at_, bytes)) {
    std::size_t free = 0, total = 0;
    driver.cuMemGetInfo_v2(&free, &total);
    fail<Error>("cuMemAlloc_v2 of {} bytes returned {}; {} of {} bytes are free", bytes, error_name(driver, status),
                free, total);
  }
  try {
    fill_with_nan();
  } catch (...) {
    driver_->cuMemFree_v2(at_);
    throw;
  }
}

DeviceMemory::~DeviceMemory() {
  if (at_) driver_->cuMemFree_v2(at_);
}

void DeviceMemory::fill_with_nan() const {
  driver_->call(driver_->cuMemsetD8_v2, at_, static_cast<unsigned char>(0xFF), bytes_);
}

void DeviceMemory::upload(const void* from, std::size_t bytes) const {
  driver_->call(driver_->cuMemcpyHtoD_v2, at_, from, bytes);
}

void DeviceMemory::download(void* to, std::size_t bytes) const {
  driver_->call(driver_->cuMemcpyDtoH_v2, to, at_, bytes);
}

void DeviceMemory::copy_from(const DeviceMemory& other) const {
  driver_->call(driver_->cuMemcpyDtoD_v2, at_, other.at_, bytes_);
}

PinnedMemory::PinnedMemory(const Driver& driver, std::size_t bytes) : driver_(driver) {
  driver_.call(driver_.cuMemAllocHost_v2, &at_, bytes);
}

PinnedMemory::~PinnedMemory() { driver_.cuMemFreeHost(at_); }

Stream::Stream(const Driver& driver) : driver_(&driver) {
  driver.call(driver.cuStreamCreate, &stream_, api::kCuStreamNonBlocking);
}

Stream::~Stream() {
  if (stream_) driver_->cuStreamDestroy_v2(stream_);
}

void Stream::synchronize() const { driver_->call(driver_->cuStreamSynchronize, stream_); }

Module::Module(const Driver& driver, const char* what, const void* image) : driver_(driver) {
  std::array<char, 4096> log{};
  // By value in the pointer for a size, by address for a buffer: that is how this array is read.
  int options[] = {api::kCuJitErrorLogBuffer, api::kCuJitErrorLogBufferSizeBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  if (const auto status = driver.cuModuleLoadDataEx(&module_, image, 2, options, values)) {
    fail<Error>("cuModuleLoadDataEx of {} returned {}: {}", what, error_name(driver, status),
                log[0] ? log.data() : "the compiler said nothing");
  }
}

Module::~Module() { driver_.cuModuleUnload(module_); }

api::CuFunction Module::function(const char* name) const {
  api::CuFunction function = nullptr;
  driver_.call(driver_.cuModuleGetFunction, &function, module_, name);
  return function;
}

}  // namespace varve::gpu::probe
