#include "indexer/content_chunker.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace varve::indexer {
namespace {

// FastCDC (Xia et al., USENIX ATC 2016): a rolling "gear" hash, no cut below the minimum, a harder mask below the mean
// and an easier one above it. The bits of the masks are spread so that the last 64 bytes count. One bit more and one
// bit less than the 20 of the mean.
constexpr std::uint64_t kHarderMask = 0x0000D93747537000;
constexpr std::uint64_t kEasierMask = 0x0000D90747537000;

// Constants of our own (SplitMix64 from 0): any fixed random table does.
constexpr std::array<std::uint64_t, 256> make_gear() {
  std::array<std::uint64_t, 256> gear{};
  std::uint64_t state = 0;
  for (auto& value : gear) {
    state += 0x9E3779B97F4A7C15;
    auto mixed = state;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    value = mixed ^ mixed >> 31;
  }
  return gear;
}
constexpr auto kGear = make_gear();

bool is_zero(ByteView bytes) {
  return bytes.front() == std::byte(0) && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Bytes of whole zero blocks that `content` begins with.
std::size_t leading_zero_blocks(ByteView content) {
  std::size_t zeros = 0;
  while (content.size() - zeros >= kZeroBlockBytes && is_zero(content.subspan(zeros, kZeroBlockBytes)))
    zeros += kZeroBlockBytes;
  return zeros;
}

// Where the first whole block of zeros begins, or the end.
std::size_t first_zero_block(ByteView content) {
  for (std::size_t at = 0; content.size() - at >= kZeroBlockBytes; at += kZeroBlockBytes) {
    if (is_zero(content.subspan(at, kZeroBlockBytes))) return at;
  }
  return content.size();
}

std::size_t gear_cut(ByteView content) {
  if (content.size() <= kMinChunkBytes) return content.size();
  std::uint64_t hash = 0;
  std::size_t at = kMinChunkBytes;
  const auto run = [&](std::size_t end, std::uint64_t mask) {
    for (; at < end; ++at) {
      hash = (hash << 1) + kGear[std::size_t(content[at])];
      if ((hash & mask) == 0) return true;
    }
    return false;
  };
  if (run(std::min(kMeanChunkBytes, content.size()), kHarderMask) || run(content.size(), kEasierMask)) return at + 1;
  return content.size();
}

}  // namespace

ChunkCut next_cut(ByteView content) {
  content = content.first(std::min(content.size(), kMaxChunkBytes));
  if (const auto zeros = leading_zero_blocks(content); zeros != 0) return {.bytes = zeros, .zeros = true};
  return {.bytes = gear_cut(content.first(first_zero_block(content))), .zeros = false};
}

}  // namespace varve::indexer
