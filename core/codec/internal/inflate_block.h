#pragma once
// Decoding of single deflate blocks (RFC 1951) out of one buffer into another. The caller keeps both supplied; nothing
// here allocates.
#include <cstdint>
#include <cstring>

#include "core/codec/internal/inflate_tables.h"

namespace varve::codec::internal {

// The longest dynamic block header is 3 + 14 + 19 * 3 bits and 316 code lengths of 7 bits each.
inline constexpr std::size_t kMaxBlockHeaderBytes = 296;
// So many readable bytes must follow the last byte that may be decoded: the bit reader loads 8 at a time.
inline constexpr std::size_t kInputSlack = 32;
// So many writable bytes must follow the output limit: three literals, a match of 258 and the last word of its copy.
inline constexpr std::size_t kOutputSlack = 320;

// The next bits of the input. `count` of them are certain to be in `buffer`.
struct BitReader {
  const std::uint8_t* in = nullptr;
  std::uint64_t buffer = 0;
  unsigned count = 0;

  // Makes at least 56 bits certain; loads 8 bytes at `in`.
  void refill() {
    std::uint64_t word;
    std::memcpy(&word, in, sizeof word);
    buffer |= word << count;
    in += (63 - count) >> 3;
    count |= 56;
  }
  std::uint32_t peek(unsigned bits) const { return std::uint32_t(buffer & ((std::uint64_t(1) << bits) - 1)); }
  void drop(unsigned bits) {
    buffer >>= bits;
    count -= bits;
  }
  std::uint32_t take(unsigned bits) {
    const auto value = peek(bits);
    drop(bits);
    return value;
  }
  // Gives whole bytes back: afterwards 0 to 7 bits are left, the high bits of in[-1].
  void give_back() {
    in -= count >> 3;
    count &= 7;
    buffer &= (std::uint64_t(1) << count) - 1;
  }
};

enum class BlockKind { kStored, kCoded };

struct BlockHeader {
  BlockKind kind = BlockKind::kCoded;
  bool last = false;
  std::uint32_t stored_bytes = 0;
  const InflateTables* tables = nullptr;  // kCoded: `own` or the fixed ones
};

// Reads a block's header, and its codes into `own`. kMaxBlockHeaderBytes and kInputSlack must be readable from
// reader.in. Returns nullptr, or why it is none. The reader has given back what it did not need.
const char* read_block_header(BitReader& reader, BlockHeader& header, InflateTables& own);

enum class DecodeStop { kInput, kOutput, kBlockEnd, kBad };

// Decodes symbols until the block ends or reader.in or `out` reach their limit. kInputSlack bytes behind `in_limit`
// must be readable and kOutputSlack bytes behind `out_limit` writable (they may be scribbled on). `oldest` is the first
// byte that may be referred to.
DecodeStop decode_symbols(BitReader& reader, const InflateTables& tables, const std::uint8_t* in_limit,
                          std::uint8_t*& out, const std::uint8_t* out_limit, const std::uint8_t* oldest,
                          const char*& reason);

}  // namespace varve::codec::internal
