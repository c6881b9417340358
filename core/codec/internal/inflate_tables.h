#pragma once
// Decode tables for the Huffman codes of deflate (RFC 1951 section 3.2). One 32-bit entry says all that the decoder
// must know of a symbol:
//
//   bits 0..7    bits to take from the input: code and extra bits
//   bits 8..11   of these, the code (behind a link: what is left of it); in a link, the bits that index the second
//   level bits 12..15  what the entry is, if it is not simply a length or distance bits 16..30  literal, base of a
//   length or distance, or where the second level begins bit 31       the entry is a literal
#include <array>
#include <cstdint>
#include <span>

namespace varve::codec::internal {

inline constexpr std::uint32_t kLiteral = 0x8000'0000;
inline constexpr std::uint32_t kSpecial = 0x8000;  // one of the following three
inline constexpr std::uint32_t kLink = 0x4000;     // the code is longer than the first level
inline constexpr std::uint32_t kBlockEnd = 0x2000;
inline constexpr std::uint32_t kInvalid = 0x1000;  // no code, or a symbol that must not occur

inline constexpr unsigned kMaxCodeBits = 15;
inline constexpr unsigned kLitlenBits = 11;
inline constexpr unsigned kDistanceBits = 8;
inline constexpr unsigned kPrecodeBits = 7;
inline constexpr std::size_t kLitlenSymbols = 288;
inline constexpr std::size_t kDistanceSymbols = 32;
inline constexpr std::size_t kPrecodeSymbols = 19;

// Each symbol with a code beyond the first level may at worst open a second level of its own, of full depth.
inline constexpr std::size_t kLitlenEntries =
    (1u << kLitlenBits) + kLitlenSymbols * (1u << (kMaxCodeBits - kLitlenBits));
inline constexpr std::size_t kDistanceEntries =
    (1u << kDistanceBits) + kDistanceSymbols * (1u << (kMaxCodeBits - kDistanceBits));

struct InflateTables {
  std::array<std::uint32_t, kLitlenEntries> litlen;
  std::array<std::uint32_t, kDistanceEntries> distance;
};

// Builders return nullptr, or why the code lengths are no code. The rules are those of zlib: no code may be
// over-subscribed; only a single code of one bit may leave codes unused; a distance code may have no symbol at all.
const char* build_litlen_table(std::span<const std::uint8_t> lengths, InflateTables& tables);
const char* build_distance_table(std::span<const std::uint8_t> lengths, InflateTables& tables);
const char* build_precode_table(std::span<const std::uint8_t> lengths,
                                std::span<std::uint32_t, 1 << kPrecodeBits> table);

// The fixed codes of RFC 1951 section 3.2.6.
const InflateTables& fixed_tables();

}  // namespace varve::codec::internal
