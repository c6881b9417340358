#pragma once
// Seeds of an image (the word is desync's): ranges of its layers whose bytes an earlier version of it has in layers of
// its own. Who has those reads them there, though no layer is the same, and needs the entries of neither version. Made
// by whoever indexes the image, and as much their word as the tree is. On disk: docs/formats/seeds.md.
#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/format/layer_map.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxSeedLayers = 65'535;  // and sources
inline constexpr std::uint64_t kMaxSeedRanges = 10'000'000;
inline constexpr std::uint64_t kSeedLiteralBytes = 4;
inline constexpr std::uint64_t kMaxSeedsBytes = 256ull << 20;  // decompressed
inline constexpr std::uint64_t kMaxSeedsBlobBytes = 64ull << 20;

// A layer of the earlier version as the index of that describes it: by the digests of its blobs, so that bytes which
// anybody else's description has let in are not meant.
struct SeedSource {
  Digest layer;
  Digest map;
  Digest entries;
  auto operator<=>(const SeedSource&) const = default;
};

// Bytes of a layer that are those of a source, except for the literals in them.
struct SeedRange {
  ByteRange stream_range;    // not empty; of a whole file, or of blocks of 512 bytes: begins at one, here and there
  std::uint32_t source = 0;  // in Seeds::sources
  std::uint64_t source_offset = 0;
  bool operator==(const SeedRange&) const = default;
};

// What the source has otherwise: the time of its source, in compiled Python.
struct SeedLiteral {
  std::uint64_t stream_offset = 0;
  std::array<std::byte, kSeedLiteralBytes> bytes = {};
  ByteRange stream_range() const { return {.offset = stream_offset, .length = kSeedLiteralBytes}; }
  bool operator==(const SeedLiteral&) const = default;
};

struct SeededLayer {
  Digest layer;
  std::vector<SeedRange> ranges;      // by offset, without overlaps; at least one
  std::vector<SeedLiteral> literals;  // likewise, each within one range
  bool operator==(const SeededLayer&) const = default;
};

struct Seeds {
  std::vector<SeedSource> sources;  // in order, each once, each of a range
  std::vector<SeededLayer> layers;  // by digest, each once

  bool empty() const { return layers.empty(); }
  std::uint64_t bytes() const;  // stream side, of all ranges
  Bytes encode() const;
  // Accepts only what encode() writes. Throws CorruptData.
  static Seeds decode(ByteView bytes, std::string_view what);
  // Throws CorruptData if a range lies outside of the image's layers, each with its map.
  void check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const;
  bool operator==(const Seeds&) const = default;
};

// As it is published.
Bytes pack_seeds(const Seeds& seeds);
// Throws CorruptData, and Unsupported for more than that when decompressed. A range has at least 4 bytes there, and 32
// in memory.
Seeds unpack_seeds(ByteView blob, std::string_view what, std::uint64_t limit_bytes = kMaxSeedsBytes);

}  // namespace varve::index
