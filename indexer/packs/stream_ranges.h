#pragma once
// Bytes of the streams of several layers, as a set.
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/index/format/start_packs.h"

namespace varve::indexer {

// Bytes of a layer's stream; `layer` is its place in the image, base 0, until the list of packs is written.
using index::PackRange;

// Not safe to use from several threads while it is added to.
class StreamRanges {
 public:
  void add(const PackRange& range);
  void add(const std::vector<PackRange>& ranges);
  bool touches(const PackRange& range) const { return !within(range).empty(); }
  // The pieces of a range that are in the set, or that are not; ascending.
  std::vector<PackRange> within(const PackRange& range) const;
  std::vector<PackRange> without(const PackRange& range) const;

 private:
  using Place = std::pair<std::uint32_t, std::uint64_t>;
  std::map<Place, std::uint64_t>::const_iterator first_after(std::uint32_t layer, std::uint64_t offset) const;

  std::map<Place, std::uint64_t> ends_;  // of each run by its layer and begin; runs neither overlap nor touch
};

std::uint64_t bytes_of(const std::vector<PackRange>& ranges);
// Lengthens the last range where the new one goes on.
void append_joined(std::vector<PackRange>& ranges, const PackRange& range);

}  // namespace varve::indexer
