#pragma once
// How frames of zstd begin: RFC 8878, sections 3.1.1 and 3.1.2.
#include <cstdint>

namespace varve::codec {

inline constexpr std::uint32_t kZstdFrameMagic = 0xFD2FB528;
inline constexpr std::uint32_t kZstdSkippableMagic = 0x184D2A50;  // and the 15 that follow

constexpr bool is_zstd_skippable(std::uint32_t magic) { return (magic & 0xfffffff0) == kZstdSkippableMagic; }

}  // namespace varve::codec
