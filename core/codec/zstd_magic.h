#pragma once
// How frames of zstd begin: RFC 8878, sections 3.1.1 and 3.1.2.
#include <cstdint>
#include <string_view>

namespace varve::codec {

inline constexpr std::uint32_t kZstdFrameMagic = 0xFD2FB528;
inline constexpr std::uint32_t kZstdSkippableMagic = 0x184D2A50;  // and the 15 that follow

// The last eight bytes of a zstd:chunked blob as containers/storage has them since 1.50.
inline constexpr std::string_view kZstdChunkedMagic = "GNUlInUx";

constexpr bool is_zstd_skippable(std::uint32_t magic) { return (magic & 0xfffffff0) == kZstdSkippableMagic; }

}  // namespace varve::codec
