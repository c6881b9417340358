#include "core/codec/internal/inflate_tables.h"

#include <algorithm>
#include <memory>

namespace varve::codec::internal {
namespace {

using LengthCounts = std::array<unsigned, kMaxCodeBits + 1>;

// A symbol's entry before its code length is added.
constexpr std::uint32_t symbol_entry(std::uint32_t value, std::uint32_t extra_bits) { return value << 16 | extra_bits; }

constexpr auto kLitlenSymbolEntries = [] {
  std::array<std::uint32_t, kLitlenSymbols> entries{};
  for (std::uint32_t literal = 0; literal < 256; ++literal) entries[literal] = kLiteral | symbol_entry(literal, 0);
  entries[256] = kSpecial | kBlockEnd;
  std::uint32_t base = 3;
  for (std::uint32_t i = 0; i < 28; ++i) {
    const std::uint32_t extra = i < 8 ? 0 : i / 4 - 1;
    entries[257 + i] = symbol_entry(base, extra);
    base += 1u << extra;
  }
  entries[285] = symbol_entry(258, 0);
  entries[286] = entries[287] = kSpecial | kInvalid;
  return entries;
}();

constexpr auto kDistanceSymbolEntries = [] {
  std::array<std::uint32_t, kDistanceSymbols> entries{};
  std::uint32_t base = 1;
  for (std::uint32_t i = 0; i < 30; ++i) {
    const std::uint32_t extra = i < 4 ? 0 : i / 2 - 1;
    entries[i] = symbol_entry(base, extra);
    base += 1u << extra;
  }
  entries[30] = entries[31] = kSpecial | kInvalid;
  return entries;
}();

constexpr auto kPrecodeSymbolEntries = [] {
  std::array<std::uint32_t, kPrecodeSymbols> entries{};
  for (std::uint32_t i = 0; i < kPrecodeSymbols; ++i) entries[i] = symbol_entry(i, 0);
  return entries;
}();

// Codes are packed with their first bit lowest, so counting up carries from the top.
std::uint32_t next_code(std::uint32_t code, unsigned length) {
  std::uint32_t bit = 1u << (length - 1);
  while ((code & bit) != 0) bit >>= 1;
  return bit == 0 ? 0 : (code & (bit - 1)) | bit;
}

// How many codes are left unused, in units of the longest code; negative if there are too many.
int codes_left(const LengthCounts& counts) {
  int left = 1;
  for (unsigned length = 1; length <= kMaxCodeBits; ++length) {
    left = left * 2 - int(counts[length]);
    if (left < 0) return left;
  }
  return left;
}

// The smallest second level that holds all codes which share a prefix, the first of them `length` long.
unsigned second_level_bits(unsigned length, unsigned table_bits, const LengthCounts& remaining) {
  unsigned bits = length - table_bits;
  int left = 1 << bits;
  while (bits + table_bits < kMaxCodeBits) {
    left -= int(remaining[bits + table_bits]);
    if (left <= 0) break;
    ++bits;
    left *= 2;
  }
  return bits;
}

void fill(std::span<std::uint32_t> table, std::size_t first, std::size_t step, std::uint32_t entry) {
  for (std::size_t i = first; i < table.size(); i += step) table[i] = entry;
}

// `counts` must describe a code that is not over-subscribed.
void fill_table(std::span<std::uint32_t> table, unsigned table_bits, std::span<const std::uint8_t> lengths,
                std::span<const std::uint32_t> symbol_entries, const LengthCounts& counts) {
  std::array<unsigned, kMaxCodeBits + 2> place{};
  for (unsigned length = 1; length <= kMaxCodeBits; ++length) place[length + 1] = place[length] + counts[length];
  const unsigned used = place[kMaxCodeBits + 1];
  std::array<std::uint16_t, kLitlenSymbols> sorted;  // by length, then symbol: the order of the codes
  for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    if (lengths[symbol] != 0) sorted[place[lengths[symbol]]++] = std::uint16_t(symbol);
  }
  const auto first_level = table.first(std::size_t(1) << table_bits);
  if (codes_left(counts) != 0)
    std::fill_n(first_level.begin(), 2, kSpecial | kInvalid);  // an unfinished code has no more than one bit

  LengthCounts remaining = counts;
  std::size_t next_free = first_level.size();
  std::uint32_t code = 0;
  std::uint32_t open_prefix = ~0u;
  std::span<std::uint32_t> second_level;
  // The first level grows by doubling: while codes of one length are entered it is as large as they need, so each takes
  // one place.
  unsigned grown_bits = 0;
  const auto grow_to = [&](unsigned bits) {
    for (; grown_bits < bits; ++grown_bits) {
      const auto size = std::size_t(1) << grown_bits;
      std::copy_n(first_level.begin(), size, first_level.begin() + std::ptrdiff_t(size));
    }
  };
  for (unsigned i = 0; i < used; ++i) {
    const unsigned length = lengths[sorted[i]];
    const auto entry = symbol_entries[sorted[i]];
    grow_to(std::min(length, table_bits));
    if (length <= table_bits) {
      first_level[code] = entry + (length | length << 8);
    } else {
      const auto prefix = code & std::uint32_t(first_level.size() - 1);
      if (prefix != open_prefix) {
        const auto bits = second_level_bits(length, table_bits, remaining);
        second_level = table.subspan(next_free, std::size_t(1) << bits);
        first_level[prefix] = std::uint32_t(next_free) << 16 | kSpecial | kLink | bits << 8 | table_bits;
        next_free += second_level.size();
        open_prefix = prefix;
      }
      const unsigned rest = length - table_bits;
      fill(second_level, code >> table_bits, std::size_t(1) << rest, entry + (rest | rest << 8));
    }
    --remaining[length];
    // A longer code that follows extends this one's successor by zeros, which changes nothing in packed form.
    code = next_code(code, length);
  }
  grow_to(table_bits);
}

LengthCounts count_lengths(std::span<const std::uint8_t> lengths) {
  LengthCounts counts{};
  for (const auto length : lengths) ++counts[length];
  counts[0] = 0;
  return counts;
}

bool is_single_one_bit_code(const LengthCounts& counts) {
  return counts[1] == 1 && std::all_of(counts.begin() + 2, counts.end(), [](unsigned n) { return n == 0; });
}

}  // namespace

const char* build_litlen_table(std::span<const std::uint8_t> lengths, InflateTables& tables) {
  if (lengths.size() <= 256 || lengths[256] == 0) return "a block without an end";
  const auto counts = count_lengths(lengths);
  const auto left = codes_left(counts);
  if (left < 0 || (left > 0 && !is_single_one_bit_code(counts))) return "bad literal and length codes";
  fill_table(tables.litlen, kLitlenBits, lengths, kLitlenSymbolEntries, counts);
  return nullptr;
}

const char* build_distance_table(std::span<const std::uint8_t> lengths, InflateTables& tables) {
  const auto counts = count_lengths(lengths);
  const auto left = codes_left(counts);
  const bool none = std::all_of(counts.begin(), counts.end(), [](unsigned n) { return n == 0; });
  if (left < 0 || (left > 0 && !none && !is_single_one_bit_code(counts))) return "bad distance codes";
  fill_table(tables.distance, kDistanceBits, lengths, kDistanceSymbolEntries, counts);
  return nullptr;
}

const char* build_precode_table(std::span<const std::uint8_t> lengths,
                                std::span<std::uint32_t, 1 << kPrecodeBits> table) {
  const auto counts = count_lengths(lengths);
  if (codes_left(counts) != 0) return "bad code lengths code";
  fill_table(table, kPrecodeBits, lengths, kPrecodeSymbolEntries, counts);
  return nullptr;
}

const InflateTables& fixed_tables() {
  static const auto tables = [] {
    auto made = std::make_unique<InflateTables>();
    std::array<std::uint8_t, kLitlenSymbols> litlen;
    for (std::size_t i = 0; i < litlen.size(); ++i) litlen[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    std::array<std::uint8_t, kDistanceSymbols> distance;
    distance.fill(5);
    build_litlen_table(litlen, *made);
    build_distance_table(distance, *made);
    return made;
  }();
  return *tables;
}

}  // namespace varve::codec::internal
