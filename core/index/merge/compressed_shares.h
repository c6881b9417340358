#pragma once
// How much of a compressed blob each entry of a layer takes: the compressor does not say, so a piece of the stream is
// divided among what it holds.
#include <cstdint>
#include <vector>

#include "core/index/format/layer_entries.h"
#include "core/index/format/layer_map.h"

namespace varve::index {

// Where the two sides of a blob correspond: between two such places the compressed bytes are spread evenly over the
// stream.
class CompressedShares {
 public:
  CompressedShares() = default;
  // By spans; by the whole blob's ratio where spans have no compressed side (one zstd frame).
  explicit CompressedShares(const LayerMap& map);
  // Both ascend; a place before the last one is ignored.
  void add(std::uint64_t stream_end, std::uint64_t compressed_end);
  // Compressed bytes of all the stream before an offset, so that shares of neighbours sum up exactly.
  std::uint64_t before(std::uint64_t stream_offset) const;

 private:
  struct Place {
    std::uint64_t stream_end = 0;
    std::uint64_t compressed_end = 0;
  };
  std::vector<Place> places_;
};

// One per entry: content with padding, and the headers before it. Entries without content share with the next one what
// lies between two contents.
std::vector<std::uint64_t> shares_of_entries(const std::vector<LayerEntry>& entries, const CompressedShares& shares);

}  // namespace varve::index
