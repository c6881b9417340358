#include "indexer/packs/stream_ranges.h"

#include <algorithm>

namespace varve::indexer {

// The first run of the layer that ends behind the offset.
std::map<StreamRanges::Place, std::uint64_t>::const_iterator StreamRanges::first_after(std::uint32_t layer,
                                                                                       std::uint64_t offset) const {
  auto at = ends_.upper_bound({layer, offset});
  if (at != ends_.begin())
    if (const auto before = std::prev(at); before->first.first == layer && before->second > offset) return before;
  return at;
}

void StreamRanges::add(const PackRange& range) {
  auto [begin, end] = std::pair(range.stream_range.offset, range.stream_range.end());
  if (begin == end) return;
  auto at = ends_.upper_bound({range.layer, begin});
  if (at != ends_.begin())
    if (const auto before = std::prev(at); before->first.first == range.layer && before->second >= begin) at = before;
  while (at != ends_.end() && at->first.first == range.layer && at->first.second <= end) {
    begin = std::min(begin, at->first.second);
    end = std::max(end, at->second);
    at = ends_.erase(at);
  }
  ends_.emplace_hint(at, Place(range.layer, begin), end);
}

void StreamRanges::add(const std::vector<PackRange>& ranges) {
  for (const auto& range : ranges) add(range);
}

std::vector<PackRange> StreamRanges::within(const PackRange& range) const {
  std::vector<PackRange> pieces;
  for (auto at = first_after(range.layer, range.stream_range.offset);
       at != ends_.end() && at->first.first == range.layer && at->first.second < range.stream_range.end(); ++at) {
    const ByteRange run{.offset = at->first.second, .length = at->second - at->first.second};
    pieces.push_back({range.layer, run.common_with(range.stream_range)});
  }
  return pieces;
}

std::vector<PackRange> StreamRanges::without(const PackRange& range) const {
  std::vector<PackRange> pieces;
  auto at = range.stream_range.offset;
  const auto add_up_to = [&](std::uint64_t end) {
    if (at < end) pieces.push_back({range.layer, {.offset = at, .length = end - at}});
  };
  for (const auto& piece : within(range)) {
    add_up_to(piece.stream_range.offset);
    at = piece.stream_range.end();
  }
  add_up_to(range.stream_range.end());
  return pieces;
}

std::uint64_t bytes_of(const std::vector<PackRange>& ranges) {
  std::uint64_t bytes = 0;
  for (const auto& range : ranges) bytes += range.stream_range.length;
  return bytes;
}

void append_joined(std::vector<PackRange>& ranges, const PackRange& range) {
  if (!ranges.empty() && ranges.back().layer == range.layer &&
      ranges.back().stream_range.end() == range.stream_range.offset)
    ranges.back().stream_range.length += range.stream_range.length;
  else
    ranges.push_back(range);
}

}  // namespace varve::indexer
