#pragma once
// A tar is blocks: the headers of an entry and its content each fill whole ones (POSIX.1-2008, pax, "ustar Interchange
// Format").
#include <cstdint>

namespace varve::codec {

inline constexpr std::uint64_t kTarBlock = 512;
inline constexpr std::uint64_t kTarMagicOffset = 257;  // in a header block

// The begin of the first block at or behind that offset.
constexpr std::uint64_t next_tar_block(std::uint64_t offset) {
  return (offset + kTarBlock - 1) / kTarBlock * kTarBlock;
}

// Content is filled up with so many zeros to a whole block.
constexpr std::uint64_t padding_of(std::uint64_t content_bytes) {
  return next_tar_block(content_bytes) - content_bytes;
}

}  // namespace varve::codec
