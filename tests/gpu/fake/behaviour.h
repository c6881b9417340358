#pragma once
// How the fake libraries behave: VARVE_FAKE_GPU, read once by each library of a process. README.md has the list of
// names.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace varve::gpu::fake {

// The first thing each function of an API does. Sleeps, hangs, crashes or prints where that is asked for at this call.
// Returns the code that the function shall return instead of doing anything; 0: go on.
int enter(const char* call) noexcept;

// A setting with a number or a text; ends the process with a message if it makes no sense.
long number(std::string_view name, long otherwise) noexcept;
std::string text(std::string_view name, std::string_view otherwise);

// The library's version, and a thing that is made and given back: what every library has.
#define FAKE_VERSION(call, number)                  \
  FAKE_API int call(int* version) {                 \
    if (const int code = enter(#call)) return code; \
    *version = number;                              \
    return 0;                                       \
  }
#define FAKE_LIFETIME(Type, create, destroy)           \
  FAKE_API int create(Type** made) {                   \
    if (const int code = enter(#create)) return code;  \
    *made = new Type();                                \
    return 0;                                          \
  }                                                    \
  FAKE_API int destroy(Type* gone) {                   \
    if (const int code = enter(#destroy)) return code; \
    delete gone;                                       \
    return 0;                                          \
  }

// The real ones open each other by name in the middle of their work, and nothing says where: the loader's rules decide,
// or who opened that library before.
bool opens_by_name(const char* library) noexcept;

enum class Wrong : std::uint8_t { kNo, kFlip, kNan, kZero, kIdle };
// What shall be wrong with the results of "gemm", "copy" ... this time; `late` behaviours spare the first asking. Ask
// once per call of the API.
Wrong wrong(std::string_view what) noexcept;

[[noreturn]] void fault(const std::string& why) noexcept;  // what a GPU calls an illegal address: says so and aborts

// Device memory is host memory under another address: who mistakes one for the other crashes, as with a real GPU.
constexpr std::uintptr_t kDeviceTag = std::uintptr_t{0x5A} << 56;
constexpr std::uintptr_t kTagBits = std::uintptr_t{0xFF} << 56;

inline std::uintptr_t to_device(void* host) noexcept { return reinterpret_cast<std::uintptr_t>(host) | kDeviceTag; }
inline bool is_device(std::uintptr_t address) noexcept { return (address & kTagBits) == kDeviceTag; }

template <typename T>
T* on_device(T* address, const char* what) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  if (!is_device(bits)) fault(std::string(what) + ": not an address of the device");
  return reinterpret_cast<T*>(bits & ~kTagBits);  // NOLINT(performance-no-int-to-ptr): the point of it
}
template <typename T>
T* on_host(T* address, const char* what) noexcept {
  if (!address || is_device(reinterpret_cast<std::uintptr_t>(address)))
    fault(std::string(what) + ": not an address of the host");
  return address;
}

// A result is computed into a place of its own and then given out as the behaviour wants it. Flip: the highest bit of
// the middle value's mantissa, or of an integer.
template <typename T>
void give(Wrong how, T* to, const T* from, std::size_t count) noexcept {
  if (how == Wrong::kIdle || !count) return;
  std::memcpy(to, from, count * sizeof(T));
  if (how == Wrong::kZero) std::memset(to, 0, count * sizeof(T));
  if (how == Wrong::kNan) {
    if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
      for (std::size_t i = 0; i < count; ++i) to[i] = std::numeric_limits<T>::quiet_NaN();
    } else {
      std::memset(to, 0xFF, count * sizeof(T));
    }
  }
  if (how == Wrong::kFlip) {
    auto* byte = reinterpret_cast<unsigned char*>(to + count / 2) + sizeof(T) -
                 (sizeof(T) == 8   ? 2
                  : sizeof(T) == 1 ? 1
                                   : 2);
    *byte ^= sizeof(T) == 8 ? 0x08 : 0x40;
  }
}

}  // namespace varve::gpu::fake
