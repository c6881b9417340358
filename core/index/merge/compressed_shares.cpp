#include "core/index/merge/compressed_shares.h"

#include <algorithm>

#include "core/codec/tar_block.h"

namespace varve::index {
namespace {

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // padding included
};

// Absent (begin > end) for entries whose bytes are their header alone.
Extent content_of(const LayerEntry& entry) {
  Extent content{1, 0};
  for (const auto& run : entry.runs) {
    if (content.begin > content.end) content = {run.stream_offset, run.stream_offset};
    content.begin = std::min(content.begin, run.stream_offset);
    content.end = std::max(content.end, run.stream_offset + run.length);
  }
  if (content.begin <= content.end) content.end = codec::next_tar_block(content.end);
  return content;
}

}  // namespace

CompressedShares::CompressedShares(const LayerMap& map) {
  if (map.format == LayerFormat::kZstdSingle) {
    add(map.stream_bytes, map.compressed_bytes);
    return;
  }
  places_.reserve(map.spans.size());
  for (const auto& span : map.spans) add(span.stream_range.end(), span.compressed_range.end());
}

void CompressedShares::add(std::uint64_t stream_end, std::uint64_t compressed_end) {
  const auto last = places_.empty() ? Place{} : places_.back();
  if (stream_end <= last.stream_end || compressed_end < last.compressed_end) return;
  places_.push_back({stream_end, compressed_end});
}

std::uint64_t CompressedShares::before(std::uint64_t stream_offset) const {
  const auto next = std::upper_bound(places_.begin(), places_.end(), stream_offset,
                                     [](std::uint64_t at, const Place& place) { return at < place.stream_end; });
  const auto last = next == places_.begin() ? Place{} : *(next - 1);
  if (next == places_.end()) return last.compressed_end;
  const auto stream = next->stream_end - last.stream_end;
  const auto compressed = next->compressed_end - last.compressed_end;
  // Both sides of one place are far below 2^53 where it matters; a rounded byte does not.
  return last.compressed_end +
         std::uint64_t(double(compressed) * double(stream_offset - last.stream_end) / double(stream));
}

std::vector<std::uint64_t> shares_of_entries(const std::vector<LayerEntry>& entries, const CompressedShares& shares) {
  std::vector<std::uint64_t> result(entries.size());
  std::uint64_t at = 0;  // end of what is given away
  std::uint64_t at_share = 0;
  std::size_t first_open = 0;  // entries since the last content
  const auto give_to = [&](std::size_t entry, std::uint64_t end) {
    const auto share = shares.before(end);
    result[entry] += share - std::min(at_share, share);
    at = end;
    at_share = share;
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto content = content_of(entries[i]);
    if (content.begin > content.end) continue;
    const auto gap = content.begin - std::min(at, content.begin);
    const auto start = at;
    const auto count = i - first_open + 1;
    for (std::size_t k = 0; k < count && gap > 0; ++k) give_to(first_open + k, start + gap / count * (k + 1));
    if (content.end > at) give_to(i, content.end);
    first_open = i + 1;
  }
  for (; first_open < entries.size(); ++first_open) give_to(first_open, at + codec::kTarBlock);
  return result;
}

}  // namespace varve::index
