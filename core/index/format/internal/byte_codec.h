#pragma once
// How our own formats are written: little-endian integers, LEB128 varints in their shortest form, raw runs; and read
// back with every step checked.
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/errors.h"

namespace varve::index {

// Small for small distances of either sign.
constexpr std::uint64_t zigzag(std::int64_t value) { return std::uint64_t(value) << 1 ^ std::uint64_t(value >> 63); }
constexpr std::int64_t unzigzag(std::uint64_t value) { return std::int64_t(value >> 1) ^ -std::int64_t(value & 1); }

inline void append_varint(Bytes& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(std::byte(value | 0x80));
    value >>= 7;
  }
  out.push_back(std::byte(value));
}

inline void append_digest(Bytes& out, const Digest& digest) { append(out, digest.raw()); }

// Reads from front to back; what is not there is CorruptData naming `what` and the offset.
class ByteReader {
 public:
  ByteReader(ByteView bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t left() const { return bytes_.size() - offset_; }
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail<CorruptData>("{}: at {}: {}", what_, offset_, reason);
  }

  ByteView take(std::uint64_t length) {
    if (length > left()) corrupt("ends too early");
    const auto taken = bytes_.subspan(offset_, length);
    offset_ += length;
    return taken;
  }
  template <std::integral T>
  T integer() {
    return load_le<T>(take(sizeof(T)).data());
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = integer<std::uint8_t>();
      if (shift == 63 && byte > 1) corrupt("a number of more than 64 bits");
      value |= std::uint64_t(byte & 0x7f) << shift;
      if ((byte & 0x80) != 0) continue;
      if (byte == 0 && shift != 0) corrupt("a number that is not in its shortest form");
      return value;
    }
    corrupt("a number of more than 64 bits");
  }
  // A varint that must not exceed `limit`.
  std::uint64_t varint_up_to(std::uint64_t limit, std::string_view reason) {
    const auto value = varint();
    if (value > limit) corrupt(reason);
    return value;
  }
  Digest digest() { return Digest::from_raw(take(Digest::kBytes)); }
  void zeros(std::uint64_t length) {
    for (const auto byte : take(length)) {
      if (byte != std::byte(0)) corrupt("reserved bytes that are not zero");
    }
  }
  void magic(std::string_view expected) {
    if (left() < expected.size() || as_text(bytes_.subspan(offset_, expected.size())) != expected)
      fail<CorruptData>("{}: does not begin with {:.6}", what_, expected);
    offset_ += expected.size();
  }
  void end() const {
    if (left() != 0) corrupt("bytes after the end");
  }

 private:
  ByteView bytes_;
  std::string_view what_;
  std::uint64_t offset_ = 0;
};

}  // namespace varve::index
