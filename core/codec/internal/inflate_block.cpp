#include "core/codec/internal/inflate_block.h"

#include <algorithm>
#include <array>

namespace varve::codec::internal {
namespace {

// RFC 1951 section 3.2.7: the order in which the lengths of the code lengths code come.
constexpr std::array<std::uint8_t, kPrecodeSymbols> kPrecodeOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                                     11, 4,  12, 3, 13, 2, 14, 1, 15};

const char* read_stored_header(BitReader& reader, BlockHeader& header) {
  header.kind = BlockKind::kStored;
  reader.give_back();
  reader.count = 0;  // the rest of the byte is padding
  reader.buffer = 0;
  reader.refill();
  const auto length = reader.take(16);
  const auto inverse = reader.take(16);
  reader.give_back();
  if (length != (~inverse & 0xffff)) return "a stored block's length does not match its complement";
  header.stored_bytes = length;
  return nullptr;
}

const char* read_code_lengths(BitReader& reader, std::span<const std::uint32_t> precode,
                              std::span<std::uint8_t> lengths) {
  for (std::size_t i = 0; i < lengths.size();) {
    reader.refill();
    const auto entry = precode[reader.peek(kPrecodeBits)];
    reader.drop(entry & 0xff);
    const auto symbol = entry >> 16;
    if (symbol < 16) {
      lengths[i++] = std::uint8_t(symbol);
      continue;
    }
    if (symbol == 16 && i == 0) return "a code length repeats nothing";
    const std::uint8_t value = symbol == 16 ? lengths[i - 1] : 0;
    const std::size_t repeat = symbol == 16   ? 3 + reader.take(2)
                               : symbol == 17 ? 3 + reader.take(3)
                                              : 11 + reader.take(7);
    if (repeat > lengths.size() - i) return "code lengths repeat beyond their end";
    std::fill_n(lengths.begin() + std::ptrdiff_t(i), repeat, value);
    i += repeat;
  }
  return nullptr;
}

const char* read_dynamic_header(BitReader& reader, InflateTables& own) {
  const auto litlen_count = 257 + reader.take(5);
  const auto distance_count = 1 + reader.take(5);
  const auto precode_count = 4 + reader.take(4);
  if (litlen_count > 286 || distance_count > 30) return "too many symbols";
  std::array<std::uint8_t, kPrecodeSymbols> precode_lengths{};
  for (std::size_t i = 0; i < precode_count; ++i) {
    if (reader.count < 8) reader.refill();
    precode_lengths[kPrecodeOrder[i]] = std::uint8_t(reader.take(3));
  }
  std::array<std::uint32_t, 1 << kPrecodeBits> precode;
  if (const auto* reason = build_precode_table(precode_lengths, precode)) return reason;
  std::array<std::uint8_t, kLitlenSymbols + kDistanceSymbols> lengths{};
  const auto all = std::span(lengths).first(litlen_count + distance_count);
  if (const auto* reason = read_code_lengths(reader, precode, all)) return reason;
  if (const auto* reason = build_litlen_table(all.first(litlen_count), own)) return reason;
  return build_distance_table(all.subspan(litlen_count), own);
}

template <std::size_t kWord>
[[gnu::always_inline]] inline void copy_words(std::uint8_t* to, const std::uint8_t* from, const std::uint8_t* end) {
  do {
    std::uint8_t word[kWord];
    std::memcpy(word, from, kWord);
    std::memcpy(to, word, kWord);
    to += kWord;
    from += kWord;
  } while (to < end);
}

// Copies a match that may overlap itself; writes up to 15 bytes too many.
[[gnu::always_inline]] inline void copy_match(std::uint8_t* to, std::size_t distance, std::size_t length) {
  const auto* from = to - distance;
  const auto* end = to + length;
  if (distance >= 16) {
    copy_words<16>(to, from, end);
  } else if (distance >= 8) {
    copy_words<8>(to, from, end);
  } else if (distance == 1) {
    std::memset(to, *from, length);
  } else {
    // The first bytes are a pattern; once it has been laid out over a word's length, words that are a multiple of it
    // apart are equal.
    for (std::size_t i = 0; i < 8; ++i) to[i] = from[i];
    const std::size_t stride = 8 / distance * distance;
    for (to += stride; to < end; to += stride) {
      std::uint8_t word[8];
      std::memcpy(word, to - stride, sizeof word);
      std::memcpy(to, word, sizeof word);
    }
  }
}

}  // namespace

const char* read_block_header(BitReader& reader, BlockHeader& header, InflateTables& own) {
  reader.refill();
  header.last = reader.take(1) != 0;
  const auto type = reader.take(2);
  if (type == 0) return read_stored_header(reader, header);
  if (type == 3) return "a block of unknown type";
  header.kind = BlockKind::kCoded;
  header.tables = &own;
  if (type == 1) {
    header.tables = &fixed_tables();
  } else if (const auto* reason = read_dynamic_header(reader, own)) {
    reader.give_back();
    return reason;
  }
  reader.give_back();
  return nullptr;
}

namespace {

// A BitReader for the inner loop: of `count` only the low 6 bits mean anything, so an entry is subtracted from it as a
// whole, and shifts are by what fits the instruction.
struct FastBits {
  const std::uint8_t* in;
  std::uint64_t buffer;
  std::uint32_t count;

  explicit FastBits(const BitReader& reader) : in(reader.in), buffer(reader.buffer), count(reader.count) {}
  BitReader reader() const { return {.in = in, .buffer = buffer, .count = count & 63}; }
  [[gnu::always_inline]] void refill() {
    std::uint64_t word;
    std::memcpy(&word, in, sizeof word);
    buffer |= word << (count & 63);
    in += 7 - (count >> 3 & 7);
    count |= 56;
  }
  // What an entry says it takes.
  [[gnu::always_inline]] void drop(std::uint32_t entry) {
    buffer >>= entry & 63;
    count -= entry;
  }
  // The base of a length or distance and its extra bits, which follow the code.
  [[gnu::always_inline]] std::uint32_t value_of(std::uint32_t entry) const {
    const auto all = buffer & ((std::uint64_t(1) << (entry & 63)) - 1);
    return (entry >> 16) + std::uint32_t(all >> (entry >> 8 & 0xf));
  }
  // Where a link points to, after its code was dropped.
  [[gnu::always_inline]] std::size_t linked(std::uint32_t link) const {
    return (link >> 16) + std::size_t(buffer & ((std::uint64_t(1) << (link >> 8 & 0xf)) - 1));
  }
};

// Decoding proper; inlined into one function for each kind of processor.
[[gnu::always_inline]] inline DecodeStop decode(BitReader& reader, const InflateTables& tables,
                                                const std::uint8_t* in_limit, std::uint8_t*& shared_out,
                                                const std::uint8_t* out_limit, const std::uint8_t* oldest,
                                                const char*& reason) {
  constexpr std::uint64_t kLitlenMask = (1u << kLitlenBits) - 1;
  constexpr std::uint64_t kDistanceMask = (1u << kDistanceBits) - 1;
  const auto* const litlen = tables.litlen.data();
  const auto* const distances = tables.distance.data();
  FastBits bits(reader);  // locals stay in registers
  std::uint8_t* out = shared_out;
  const auto stop = [&](DecodeStop why) {
    reader = bits.reader();
    reader.give_back();
    shared_out = out;
    return why;
  };
  if (bits.in >= in_limit) return stop(DecodeStop::kInput);
  bits.refill();
  // What comes next is looked up before the last match is copied: the processor does both at once.
  auto entry = litlen[bits.buffer & kLitlenMask];
  while (true) {
    if (bits.in >= in_limit) return stop(DecodeStop::kInput);
    if (out >= out_limit) return stop(DecodeStop::kOutput);
    if ((entry & kLiteral) != 0) {
      // First-level codes have at most 11 bits: 56 bits hold three literals.
      bits.drop(entry);
      *out++ = std::uint8_t(entry >> 16);
      entry = litlen[bits.buffer & kLitlenMask];
      if ((entry & kLiteral) != 0) {
        bits.drop(entry);
        *out++ = std::uint8_t(entry >> 16);
        entry = litlen[bits.buffer & kLitlenMask];
        if ((entry & kLiteral) != 0) {
          bits.drop(entry);
          *out++ = std::uint8_t(entry >> 16);
          bits.refill();
          entry = litlen[bits.buffer & kLitlenMask];
          continue;
        }
      }
      bits.refill();  // a whole match needs up to 48 bits
    }
    if ((entry & kSpecial) != 0) {
      if ((entry & kLink) != 0) {
        bits.drop(entry);
        entry = litlen[bits.linked(entry)];
        if ((entry & kLiteral) != 0) {
          bits.drop(entry);
          *out++ = std::uint8_t(entry >> 16);
          bits.refill();
          entry = litlen[bits.buffer & kLitlenMask];
          continue;
        }
      }
      if ((entry & kSpecial) != 0) {
        if ((entry & kBlockEnd) != 0) {
          bits.drop(entry);
          return stop(DecodeStop::kBlockEnd);
        }
        reason = "a code that stands for nothing";
        return stop(DecodeStop::kBad);
      }
    }
    const std::size_t length = bits.value_of(entry);
    bits.drop(entry);

    entry = distances[bits.buffer & kDistanceMask];
    if ((entry & kSpecial) != 0) {
      if ((entry & kLink) != 0) {
        bits.drop(entry);
        entry = distances[bits.linked(entry)];
      }
      if ((entry & kSpecial) != 0) {
        reason = "a distance code that stands for nothing";
        return stop(DecodeStop::kBad);
      }
    }
    const std::size_t distance = bits.value_of(entry);
    bits.drop(entry);
    if (distance > std::size_t(out - oldest)) {
      reason = "a distance that reaches before the data";
      return stop(DecodeStop::kBad);
    }
    bits.refill();
    entry = litlen[bits.buffer & kLitlenMask];
    copy_match(out, distance, length);
    out += length;
  }
}

#if defined(__x86_64__)
// Shifts by a variable and masks are one instruction each there.
[[gnu::target("bmi,bmi2")]] DecodeStop decode_with_bmi2(BitReader& reader, const InflateTables& tables,
                                                        const std::uint8_t* in_limit, std::uint8_t*& out,
                                                        const std::uint8_t* out_limit, const std::uint8_t* oldest,
                                                        const char*& reason) {
  return decode(reader, tables, in_limit, out, out_limit, oldest, reason);
}
const bool kHasBmi2 = __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_supports("bmi") != 0;
#endif

}  // namespace

DecodeStop decode_symbols(BitReader& reader, const InflateTables& tables, const std::uint8_t* in_limit,
                          std::uint8_t*& out, const std::uint8_t* out_limit, const std::uint8_t* oldest,
                          const char*& reason) {
#if defined(__x86_64__)
  if (kHasBmi2) return decode_with_bmi2(reader, tables, in_limit, out, out_limit, oldest, reason);
#endif
  return decode(reader, tables, in_limit, out, out_limit, oldest, reason);
}

}  // namespace varve::codec::internal
