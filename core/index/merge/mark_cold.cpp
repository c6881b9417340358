#include "core/index/merge/mark_cold.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/base/errors.h"

namespace varve::index {
namespace {

// What the readers of a tree need of one layer's spans.
class SpanUse {
 public:
  explicit SpanUse(const LayerMap& map) : map_(map), needs_(map.spans.size()) {}

  const LayerMap& map() const { return map_; }

  void add(ByteRange range, bool cold) {
    const auto [first, last] = map_.spans_of(range);
    for (auto span = first; span < last; ++span) needs_[span] |= cold ? kCold : kHot;
  }
  // After all was added: what a hot span follows is decoded before it, so it is no less hot.
  void settle() {
    for (auto span = needs_.size(); span-- > 1;)
      if ((needs_[span] & kHot) != 0 && map_.spans[span].follows) needs_[span - 1] |= kHot;
  }
  bool needed_elsewhere(std::size_t span) const { return (needs_[span] & kHot) != 0; }

  // [first, last) of neighbours that are cold, what nobody reads between two of them included.
  std::vector<std::pair<std::size_t, std::size_t>> cold_stretches() const {
    std::vector<std::pair<std::size_t, std::size_t>> stretches;
    bool goes_on = false;  // nothing hot since the last cold span
    for (std::size_t span = 0; span < needs_.size(); ++span) {
      if ((needs_[span] & kHot) != 0) {
        goes_on = false;
      } else if (needs_[span] == kCold) {
        if (goes_on) {
          stretches.back().second = span + 1;
        } else {
          stretches.emplace_back(span, span + 1);
        }
        goes_on = true;
      }
    }
    return stretches;
  }

 private:
  static constexpr std::uint8_t kHot = 1;
  static constexpr std::uint8_t kCold = 2;
  const LayerMap& map_;
  std::vector<std::uint8_t> needs_;
};

class Marker {
 public:
  Marker(const FlatTree& tree, const std::vector<std::shared_ptr<const LayerMap>>& maps, const ColdContent& content)
      : tree_(tree), maps_(maps) {
    for (const auto& [path, entry] : tree.entries) {
      if (entry.type != FileType::kRegular || entry.link_of.empty()) continue;
      if (!content.files.contains(path)) read_otherwise_.insert(entry.link_of);
    }
    for (const auto& [path, entry] : tree.entries) {
      if (entry.type == FileType::kRegular && entry.link_of.empty() && content.files.contains(path) &&
          !read_otherwise_.contains(path))
        cold_.insert(path);
    }
    for (const auto& [path, parts] : content.parts) add_parts(path, parts);
    // An image that repeats a layer has one stream for it.
    for (const auto& map : maps) uses_.try_emplace(map->layer_digest, *map);
    each_piece([](SpanUse& use, ByteRange range, bool cold) { use.add(range, cold); });
    for (auto& [digest, use] : uses_) use.settle();
  }

  ColdRanges ranges(ColdSummary& summary) {
    ColdRanges result;
    for (const auto& [digest, use] : uses_) {
      // Such a layer is decoded from its beginning whatever of it is wanted.
      if (use.map().format == LayerFormat::kZstdSingle) continue;
      LayerCold layer{.layer_digest = digest, .ranges = {}};
      const auto& spans = use.map().spans;
      for (const auto& [first, last] : use.cold_stretches()) {
        const auto begin = spans[first].stream_range.offset;
        layer.ranges.push_back({.offset = begin, .length = spans[last - 1].stream_range.end() - begin});
        summary.stream_bytes += layer.ranges.back().length;
        for (auto span = first; span < last; ++span)
          summary.compressed_bytes += spans[span].compressed_range.length + use.map().record_range(span).length;
      }
      if (!layer.ranges.empty()) result.layers.push_back(std::move(layer));
    }
    count_files(summary);
    return result;
  }

 private:
  void add_parts(const std::string& path, const std::vector<ByteRange>& parts) {
    const auto* file = tree_.find_regular(path);
    if (file == nullptr) fail<CorruptData>("'{:.200}' has cold parts and is no file of the tree", path);
    std::uint64_t end = 0;
    for (const auto& part : parts) {
      if (part.length == 0 || part.offset < end || !part.fits_in(file->size))
        fail<CorruptData>("'{:.200}' has {} bytes, and a cold part at {}+{} behind one that ends at {}", path,
                          file->size, part.offset, part.length, end);
      end = part.end();
    }
    const std::string_view first_name = file->is_first_name() ? std::string_view(path) : file->link_of;
    if (!parts.empty() && !cold_.contains(first_name) && !parts_.emplace(first_name, &parts).second)
      fail<CorruptData>("'{:.200}' has cold parts under two names", path);
  }

  // use(stream of a layer, range of it, cold) for all content that can be read.
  template <typename Use>
  void each_piece(Use&& use) {
    for (const auto& [path, entry] : tree_.entries) {
      if (entry.type != FileType::kRegular || !entry.link_of.empty()) continue;
      const bool cold = cold_.contains(path);
      const auto parts = parts_.find(path);
      for (const auto& run : entry.runs) {
        auto& stream = stream_of(run, path);
        if (parts == parts_.end()) {
          use(stream, {.offset = run.run.stream_offset, .length = run.run.length}, cold);
        } else {
          each_part(run.run, *parts->second, [&](ByteRange range, bool is_cold) { use(stream, range, is_cold); });
        }
      }
    }
  }

  SpanUse& stream_of(const TreeRun& run, std::string_view path) {
    if (run.layer >= maps_.size()) fail<CorruptData>("'{:.200}' lies in layer {} of {}", path, run.layer, maps_.size());
    const auto& map = *maps_[run.layer];
    const ByteRange range{.offset = run.run.stream_offset, .length = run.run.length};
    if (!range.fits_in(map.stream_bytes))
      fail<CorruptData>("'{:.200}' lies outside of layer {}", path, map.layer_digest.to_string());
    return uses_.at(map.layer_digest);
  }

  // The pieces of a run that lie in the cold parts of its file, and those between them.
  template <typename Run, typename Use>
  static void each_part(const Run& run, const std::vector<ByteRange>& parts, Use&& use) {
    auto at = run.file_offset;
    const auto end = at + run.length;
    const auto piece_to = [&](std::uint64_t until, bool cold) {
      if (until > at) use(ByteRange{.offset = run.stream_offset + (at - run.file_offset), .length = until - at}, cold);
      at = std::max(at, until);
    };
    for (auto part = std::ranges::upper_bound(parts, at, {}, [](const ByteRange& one) { return one.end(); });
         part != parts.end() && part->offset < end; ++part) {
      piece_to(part->offset, false);
      piece_to(std::min(part->end(), end), true);
    }
    piece_to(end, false);
  }

  void count_files(ColdSummary& summary) {
    summary.files = cold_.size();
    for (const auto& path : cold_) summary.content_bytes += tree_.entries.find(path)->second.size;
    summary.part_files = parts_.size();
    for (const auto& [path, parts] : parts_)
      for (const auto& part : *parts) summary.part_bytes += part.length;
    each_piece([&](const SpanUse& use, ByteRange range, bool cold) {
      if (!cold) return;
      if (use.map().format == LayerFormat::kZstdSingle) {
        summary.single_frame_bytes += range.length;
        return;
      }
      const auto [first, last] = use.map().spans_of(range);
      for (auto span = first; span < last; ++span) {
        if (!use.needed_elsewhere(span)) continue;
        const auto& spanned = use.map().spans[span].stream_range;
        summary.shared_span_bytes += std::min(spanned.end(), range.end()) - std::max(spanned.offset, range.offset);
      }
    });
  }

  const FlatTree& tree_;
  const std::vector<std::shared_ptr<const LayerMap>>& maps_;
  std::set<std::string_view> read_otherwise_;  // first names of inodes that have a name which is not cold
  std::set<std::string_view> cold_;            // first names
  std::map<std::string_view, const std::vector<ByteRange>*> parts_;  // by first name; of files that are not cold
  std::map<Digest, SpanUse> uses_;
};

// Of a range, what lies in these: ordered, and none touches another.
std::uint64_t bytes_within(const std::vector<ByteRange>& ranges, ByteRange range) {
  std::uint64_t bytes = 0;
  auto at = std::ranges::partition_point(ranges, [&](const ByteRange& one) { return one.end() <= range.offset; });
  for (; at != ranges.end() && at->offset < range.end(); ++at)
    bytes += std::min(at->end(), range.end()) - std::max(at->offset, range.offset);
  return bytes;
}

}  // namespace

std::map<std::string, ColdShare, std::less<>> cold_shares(const FlatTree& tree,
                                                          const std::vector<std::shared_ptr<const LayerMap>>& maps,
                                                          const ColdRanges& cold) {
  std::map<std::string, ColdShare, std::less<>> shares;
  for (const auto& [path, entry] : tree.entries) {
    if (entry.type != FileType::kRegular) continue;
    const auto first = entry.is_first_name() ? tree.entries.end() : tree.entries.find(entry.link_of);
    ColdShare share;
    std::uint64_t stored = 0;
    for (const auto& run : (first == tree.entries.end() ? entry : first->second).runs) {
      if (run.layer >= maps.size()) fail<CorruptData>("'{:.200}' lies in layer {} of {}", path, run.layer, maps.size());
      const ByteRange range{.offset = run.run.stream_offset, .length = run.run.length};
      if (!range.fits_in(maps[run.layer]->stream_bytes))
        fail<CorruptData>("'{:.200}' lies outside of layer {}", path, maps[run.layer]->layer_digest.to_string());
      stored += range.length;
      share.bytes += bytes_within(cold.of(maps[run.layer]->layer_digest), range);
    }
    share.whole = share.bytes == stored;
    if (share.bytes > 0) shares.emplace(path, share);
  }
  return shares;
}

ColdRanges mark_cold(const FlatTree& tree, const std::vector<std::shared_ptr<const LayerMap>>& maps,
                     const ColdContent& cold, ColdSummary* summary) {
  ColdSummary ignored;
  return Marker(tree, maps, cold).ranges(summary != nullptr ? *summary : ignored);
}

}  // namespace varve::index
