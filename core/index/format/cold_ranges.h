#pragma once
// Which stretches of an image's layers are cold: fetched when somebody reads them, as everything else, but left out of
// `pull` and of what is fetched ahead. Part of an index, so that an image that is pinned for ever gains too. On disk:
// docs/formats/cold.md.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/format/layer_map.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxColdRanges = 4'000'000;  // of all layers together
inline constexpr std::uint64_t kMaxColdLayers = 65'535;
inline constexpr std::uint64_t kMaxColdBlobBytes = 96ull << 20;  // more than kMaxColdRanges can take

struct LayerCold {
  Digest layer_digest;
  std::vector<ByteRange> ranges;  // stream side; in order, not empty, not touching
  bool operator==(const LayerCold&) const = default;
};

struct ColdRanges {
  std::vector<LayerCold> layers;  // by digest, each once; layers without cold ranges are not named

  // Those of a layer; empty if it has none.
  const std::vector<ByteRange>& of(const Digest& layer_digest) const;
  std::uint64_t bytes() const;  // stream side
  bool empty() const { return layers.empty(); }

  Bytes encode() const;
  // Accepts only what encode() writes. Throws CorruptData.
  static ColdRanges decode(ByteView bytes, std::string_view what);
  // Throws CorruptData if a range lies outside of the image's layers, each with its map.
  void check(const std::vector<std::shared_ptr<const LayerMap>>& maps, std::string_view what) const;
  bool operator==(const ColdRanges&) const = default;
};

// Calls use(span) for the spans that lie wholly in one of the ranges (as LayerCold has them), in order.
template <typename Use>
void for_each_span_within(const LayerMap& map, const std::vector<ByteRange>& ranges, Use&& use) {
  for (const auto& range : ranges) {
    if (range.length == 0 || !range.fits_in(map.stream_bytes)) continue;
    for (auto span = map.span_at(range.offset);
         span < map.spans.size() && map.spans[span].stream_range.end() <= range.end(); ++span) {
      if (map.spans[span].stream_range.offset >= range.offset) use(span);
    }
  }
}

}  // namespace varve::index
