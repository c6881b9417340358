#pragma once
// Byte containers and little-endian integers, as all our own formats store them.
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace varve {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline ByteView as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
inline Bytes to_bytes(ByteView view) { return {view.begin(), view.end()}; }

static_assert(std::endian::native == std::endian::little,
              "the on-disk formats are read in place on little-endian hosts");

// The caller has checked that sizeof(T) bytes are there.
template <std::integral T>
T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <std::integral T>
void store_le(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

template <std::integral T>
void append_le(Bytes& out, T value) {
  const auto old_size = out.size();
  out.resize(old_size + sizeof value);
  store_le(out.data() + old_size, value);
}

inline void append(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

}  // namespace varve
