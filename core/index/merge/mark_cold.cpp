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
  Marker(const FlatTree& tree, const std::vector<std::shared_ptr<const LayerMap>>& maps,
         const std::set<std::string, std::less<>>& cold_paths)
      : tree_(tree), maps_(maps) {
    for (const auto& [path, entry] : tree.entries) {
      if (entry.type != FileType::kRegular || entry.link_of.empty()) continue;
      if (!cold_paths.contains(path)) read_otherwise_.insert(entry.link_of);
    }
    for (const auto& [path, entry] : tree.entries) {
      if (entry.type == FileType::kRegular && entry.link_of.empty() && cold_paths.contains(path) &&
          !read_otherwise_.contains(path))
        cold_.insert(path);
    }
    // An image that repeats a layer has one stream for it.
    for (const auto& map : maps) uses_.try_emplace(map->layer_digest, *map);
    for (const auto& [path, entry] : tree.entries)
      each_run(path, entry, [](SpanUse& use, ByteRange range, bool cold) { use.add(range, cold); });
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
          summary.compressed_bytes += spans[span].compressed_range.length + spans[span].window.length;
      }
      if (!layer.ranges.empty()) result.layers.push_back(std::move(layer));
    }
    count_files(summary);
    return result;
  }

 private:
  template <typename Use>
  void each_run(const std::string& path, const FlatEntry& entry, Use&& use) {
    if (entry.type != FileType::kRegular || !entry.link_of.empty()) return;
    const bool cold = cold_.contains(path);
    for (const auto& run : entry.runs) {
      if (run.layer >= maps_.size())
        fail<CorruptData>("'{:.200}' lies in layer {} of {}", path, run.layer, maps_.size());
      const auto& map = *maps_[run.layer];
      const ByteRange range{.offset = run.run.stream_offset, .length = run.run.length};
      if (!range.fits_in(map.stream_bytes))
        fail<CorruptData>("'{:.200}' lies outside of layer {}", path, map.layer_digest.to_string());
      use(uses_.at(map.layer_digest), range, cold);
    }
  }

  void count_files(ColdSummary& summary) {
    summary.files = cold_.size();
    for (const auto& path : cold_) {
      const auto& entry = tree_.entries.find(path)->second;
      summary.content_bytes += entry.size;
      each_run(std::string(path), entry, [&](SpanUse& use, ByteRange range, bool) {
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
  }

  const FlatTree& tree_;
  const std::vector<std::shared_ptr<const LayerMap>>& maps_;
  std::set<std::string_view> read_otherwise_;  // first names of inodes that have a name which is not cold
  std::set<std::string_view> cold_;            // first names
  std::map<Digest, SpanUse> uses_;
};

}  // namespace

ColdRanges mark_cold(const FlatTree& tree, const std::vector<std::shared_ptr<const LayerMap>>& maps,
                     const std::set<std::string, std::less<>>& cold_paths, ColdSummary* summary) {
  ColdSummary ignored;
  return Marker(tree, maps, cold_paths).ranges(summary != nullptr ? *summary : ignored);
}

}  // namespace varve::index
