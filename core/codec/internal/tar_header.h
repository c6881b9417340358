#pragma once
// One 512-byte tar header block. Formats: v7, POSIX ustar (IEEE 1003.1), old GNU, star.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/codec/tar_block.h"

namespace varve::codec::internal {

// Above every stream we accept; keeps sums of offsets and sizes far from overflow.
inline constexpr std::uint64_t kMaxTarNumber = std::uint64_t(1) << 60;

// Where in which object we are, for messages.
struct TarPlace {
  std::string_view what;
  std::uint64_t stream_offset = 0;
};

enum class TarDialect { kV7, kUstar, kGnu, kStar };

struct TarHeader {
  TarDialect dialect = TarDialect::kV7;
  char typeflag = 0;
  std::string name;  // with the ustar prefix
  std::string link_name;
  std::uint32_t mode = 0;  // 07777 bits
  std::uint64_t uid = 0;
  std::uint64_t gid = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_seconds = 0;
  std::uint32_t device_major = 0;  // read only for devices: other entries of old tars hold anything there
  std::uint32_t device_minor = 0;
};

bool is_zero_block(ByteView block);

// `block` is kTarBlock long. Throws CorruptData for a wrong checksum or a field that is no number.
TarHeader parse_tar_header(ByteView block, const TarPlace& place);

// A numeric field: octal text, or base-256 (big-endian two's complement) if the top bit of its first byte is set. An
// empty field is 0.
std::int64_t parse_tar_number(ByteView field, std::string_view field_name, const TarPlace& place);
// The same, refused if negative or above kMaxTarNumber.
std::uint64_t parse_tar_size(ByteView field, std::string_view field_name, const TarPlace& place);

// A text field: up to its first NUL.
std::string_view tar_text(ByteView field);

}  // namespace varve::codec::internal
