#include "fuse/stream/prefetch.h"

#include <algorithm>
#include <map>

#include "core/base/errors.h"
#include "core/base/log.h"

namespace varve::fuse {
namespace {

using SpanKey = std::pair<std::size_t, std::size_t>;  // layer, span

// The spans of one layer that need not be wanted, or are wanted already.
struct LayerSpans {
  std::shared_ptr<LayerStream> layer;
  std::vector<bool> settled;
};

class Planner {
 public:
  Planner(const std::vector<std::shared_ptr<LayerStream>>& layers, const index::ColdRanges& cold,
          const PrefetchOptions& options)
      : options_(options) {
    for (const auto& layer : layers) {
      const auto& map = layer->map();
      if (!numbers_.try_emplace(map.layer_digest, layers_.size()).second) continue;
      auto& spans = layers_.emplace_back(LayerSpans{.layer = layer, .settled = std::vector<bool>(map.spans.size())});
      index::for_each_span_within(map, cold.of(map.layer_digest),
                                  [&](std::size_t span) { spans.settled[span] = true; });
    }
  }

  std::vector<PrefetchPiece> plan(const index::Profile& profile) {
    for (const auto& range : profile.ranges) {
      const auto number = numbers_.find(profile.layers[range.layer]);
      if (number == numbers_.end()) continue;
      const auto& map = layers_[number->second].layer->map();
      if (!range.stream_range.fits_in(map.stream_bytes)) continue;
      const auto [first, last] = map.spans_of(range.stream_range);
      for (auto span = first; span < last; ++span) add(number->second, span);
    }
    end_window();
    return std::move(pieces_);
  }

 private:
  void add(std::size_t layer, std::size_t span) {
    auto& spans = layers_[layer];
    if (spans.settled[span]) return;
    spans.settled[span] = true;
    const auto& place = spans.layer->map().spans[span];
    if (spans.layer->is_readable(place.stream_range)) return;
    window_.emplace(SpanKey{layer, span}, window_.size());
    window_bytes_ += place.compressed_range.length;
    if (window_bytes_ >= options_.window_bytes) end_window();
  }

  // Neighbours as one piece; pieces in the order of what is wanted first of each.
  void end_window() {
    std::vector<std::pair<std::size_t, PrefetchPiece>> runs;
    SpanKey last;
    for (const auto& [key, place_in_order] : window_) {
      const auto& layer = layers_[key.first].layer;
      const auto& span = layer->map().spans[key.second];
      if (!runs.empty() && key.first == last.first && key.second == last.second + 1) {
        auto& [first_place, piece] = runs.back();
        first_place = std::min(first_place, place_in_order);
        piece.stream_range.length += span.stream_range.length;
        piece.compressed_bytes += span.compressed_range.length;
      } else {
        runs.push_back(
            {place_in_order,
             {.layer = layer, .stream_range = span.stream_range, .compressed_bytes = span.compressed_range.length}});
      }
      last = key;
    }
    std::ranges::sort(runs, {}, [](const auto& run) { return run.first; });
    for (auto& run : runs) pieces_.push_back(std::move(run.second));
    window_.clear();
    window_bytes_ = 0;
  }

  const PrefetchOptions options_;
  std::map<Digest, std::size_t> numbers_;
  std::vector<LayerSpans> layers_;
  std::map<SpanKey, std::size_t> window_;  // and the place in the order
  std::uint64_t window_bytes_ = 0;
  std::vector<PrefetchPiece> pieces_;
};

}  // namespace

std::vector<PrefetchPiece> plan_prefetch(const std::vector<std::shared_ptr<LayerStream>>& layers,
                                         const index::Profile& profile, const index::ColdRanges& cold,
                                         const PrefetchOptions& options) {
  return Planner(layers, cold, options).plan(profile);
}

Prefetch::Prefetch(std::vector<PrefetchPiece> pieces, const PrefetchOptions& options)
    : under_way_(Priority::kReadAhead, options.max_bytes_under_way) {
  thread_ = std::jthread([this, pieces = std::move(pieces)] {
    try {
      for (const auto& piece : pieces)
        under_way_.want(*piece.layer, piece.stream_range, piece.compressed_bytes,
                        [this, bytes = piece.compressed_bytes] { fetched_bytes_ += bytes; });
      under_way_.wait();
    } catch (const Cancelled&) {
    } catch (const std::exception& error) {
      log::info("prefetch ends early: {}", error.what());
    }
  });
}

Prefetch::~Prefetch() { under_way_.stop(); }

}  // namespace varve::fuse
