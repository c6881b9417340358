#pragma once
// The driver, a device and what lives on it. All of this belongs to one thread; the driver must outlive the devices, a
// device its memory, streams and modules.
#include <string>
#include <utility>
#include <vector>

#include "gpu/probe/library.h"
#include "gpu/probe/status_names.h"

namespace varve::gpu::probe {

using Driver = Api<api::DriverFunctions>;

// Opens and initialises the driver. Throws Skip if there is none, or no device.
Driver open_driver(Report& report, const LibraryFolders& folders);
int device_count(const Driver& driver);

// What is known of a device without using it.
struct DeviceFacts {
  int ordinal = 0;
  api::CuDevice handle = 0;
  std::string name, uuid, pci_bus_id;  // "NVIDIA H200", "GPU-...", "0000:18:00.0"
  int major = 0, minor = 0;            // compute capability
  std::size_t memory_bytes = 0;
};
// Throws Error if there is no device of that number.
DeviceFacts device_facts(const Driver& driver, int ordinal);

// A device in use: its primary context, which the libraries of the toolkit use too, is current in this thread from the
// constructor on.
class Device {
 public:
  Device(const Driver& driver, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  double context_seconds() const { return context_seconds_; }  // that making the context took
  void make_current() const;
  void synchronize() const;

 private:
  const Driver& driver_;
  DeviceFacts facts_;
  double context_seconds_ = 0;
  api::CuContext context_ = nullptr;
};

// Memory on the current device, filled with 0xFF: NaN as floating point, so that what nobody wrote is not taken for a
// result.
class DeviceMemory {
 public:
  DeviceMemory(const Driver& driver, std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : driver_(other.driver_), at_(std::exchange(other.at_, 0)), bytes_(other.bytes_) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  api::CuDevicePtr address() const { return at_; }
  std::size_t bytes() const { return bytes_; }
  void fill_with_nan() const;
  void upload(const void* from, std::size_t bytes) const;
  void download(void* to, std::size_t bytes) const;
  void copy_from(const DeviceMemory& other) const;  // same size; does not wait

 private:
  const Driver* driver_;
  api::CuDevicePtr at_ = 0;
  std::size_t bytes_;
};

// `count` values of type T on the current device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(const Driver& driver, std::size_t count) : memory_(driver, count * sizeof(T)), count_(count) {}
  DeviceArray(const Driver& driver, const std::vector<T>& values) : DeviceArray(driver, values.size()) {
    upload(values);
  }

  T* get() const { return reinterpret_cast<T*>(memory_.address()); }  // for the libraries; means nothing on the host
  const DeviceMemory& memory() const { return memory_; }
  void fill_with_nan() const { memory_.fill_with_nan(); }
  void upload(const std::vector<T>& values) const { memory_.upload(values.data(), values.size() * sizeof(T)); }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    memory_.download(values.data(), count_ * sizeof(T));
    return values;
  }

 private:
  DeviceMemory memory_;
  std::size_t count_;
};

// Memory of the host that the device reads and writes by itself, as copies at full speed need it.
class PinnedMemory {
 public:
  PinnedMemory(const Driver& driver, std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* get() const { return at_; }

 private:
  const Driver& driver_;
  void* at_ = nullptr;
};

class Stream {
 public:
  explicit Stream(const Driver& driver);
  ~Stream();
  Stream(Stream&& other) noexcept : driver_(other.driver_), stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  api::CuStream get() const { return stream_; }
  void synchronize() const;

 private:
  const Driver* driver_;
  api::CuStream stream_ = nullptr;
};

// PTX text or a cubin, loaded into the current context. A PTX that the driver's compiler refuses is an Error with the
// compiler's words.
class Module {
 public:
  Module(const Driver& driver, const char* what, const void* image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  api::CuFunction function(const char* name) const;

 private:
  const Driver& driver_;
  api::CuModule module_ = nullptr;
};

// Starts a kernel on the default stream; does not wait. Parameters are passed as the kernel declares them, in type and
// order.
template <typename... Parameters>
void launch(const Driver& driver, api::CuFunction function, unsigned blocks, unsigned threads,
            Parameters... parameters) {
  void* addresses[] = {&parameters...};
  driver.call(driver.cuLaunchKernel, function, blocks, 1u, 1u, threads, 1u, 1u, 0u, api::CuStream{nullptr},
              static_cast<void**>(addresses), static_cast<void**>(nullptr));
}

}  // namespace varve::gpu::probe
