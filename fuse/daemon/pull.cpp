#include "fuse/daemon/pull.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/base/clock.h"
#include "core/index/format/cold_ranges.h"
#include "fuse/daemon/served_image.h"
#include "fuse/stream/pieces_under_way.h"

namespace varve::fuse {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(5);
constexpr int kOthersShare = 4;                   // of a fifth each
constexpr std::uint64_t kTurnBytes = 8ull << 20;  // of one layer, before the next has its turn

// All but the spans that may stay away; one that is cold only in part is wanted.
std::vector<ByteRange> wanted_of(const PulledLayer& layer) {
  const auto& map = layer.stream->map();
  std::vector<ByteRange> wanted;
  std::uint64_t at = 0;
  const auto want_up_to = [&](std::uint64_t end) {
    if (end > at) wanted.push_back({.offset = at, .length = end - at});
  };
  index::for_each_span_within(map, layer.left_out, [&](std::size_t span) {
    const auto& range = map.spans[span].stream_range;
    want_up_to(range.offset);
    at = range.end();
  });
  want_up_to(map.stream_bytes);
  return wanted;
}

struct Turn {
  double share = 0;  // of what is wanted of its layer, that is here when this is
  PulledRanges wanted;
};

std::vector<PulledRanges> side_by_side(const std::vector<PulledRanges>& layers) {
  std::vector<Turn> turns;
  for (const auto& [stream, ranges] : layers) {
    double total = 0, done = 0;
    for (const auto& range : ranges) total += double(range.length);
    for (const auto& range : ranges)
      for (auto offset = range.offset; offset < range.end(); offset += kTurnBytes) {
        const auto bytes = std::min(kTurnBytes, range.end() - offset);
        done += double(bytes);
        turns.push_back({.share = done / total, .wanted = {.stream = stream, .ranges = {{offset, bytes}}}});
      }
  }
  std::ranges::stable_sort(turns, {}, &Turn::share);
  std::vector<PulledRanges> in_order;
  for (auto& turn : turns) in_order.push_back(std::move(turn.wanted));
  return in_order;
}

// Wants pieces as the pace says.
class PacedPull {
 public:
  PacedPull(const Work& work, const PullPace& pace)
      : work_(work), pace_(pace), under_way_(Priority::kBackground, pace.max_pieces, &work.cancel) {}

  void want(LayerStream& stream, ByteRange wanted) {
    for (auto offset = wanted.offset; offset < wanted.end(); offset += pace_.piece_bytes) {
      const ByteRange piece{offset, std::min(pace_.piece_bytes, wanted.end() - offset)};
      const auto arrived = [&progress = work_.progress, bytes = piece.length] { progress.add(bytes); };
      if (stream.is_readable(piece)) {
        arrived();
      } else {
        give_way();
        under_way_.want(stream, piece, 1, arrived);
      }
    }
  }
  void wait() { under_way_.wait(); }

 private:
  // For at most as long as it takes others to have had their share since the last piece.
  void give_way() {
    if (!pace_.somebody_waits) return;
    const auto patience = kOthersShare * std::chrono::duration<double>(own_.seconds());
    for (const Stopwatch waited; pace_.somebody_waits() && waited.seconds() < patience.count();) {
      work_.cancel.throw_if_cancelled();
      std::this_thread::sleep_for(kLookAgain);
    }
    own_ = Stopwatch();
  }

  const Work& work_;
  const PullPace& pace_;
  PiecesUnderWay under_way_;
  Stopwatch own_;  // since the last piece was wanted
};

}  // namespace

std::vector<PulledLayer> layers_to_pull(const ServedImage& image, bool cold) {
  const auto marks = image.cold();
  std::vector<PulledLayer> layers;
  for (const auto& layer : image.distinct_layers())
    layers.push_back(
        {.stream = layer, .left_out = cold ? std::vector<ByteRange>() : marks->of(layer->map().layer_digest)});
  return layers;
}

std::uint64_t fetched_bytes_of(const std::vector<std::shared_ptr<LayerStream>>& streams) {
  std::uint64_t bytes = 0;
  for (const auto& stream : streams) bytes += stream->stats().fetched_bytes;
  return bytes;
}

void pull_layers(const std::vector<PulledLayer>& layers, const Work& work, const PullPace& pace) {
  std::vector<PulledRanges> wanted;
  for (const auto& layer : layers) wanted.push_back({.stream = layer.stream, .ranges = wanted_of(layer)});
  pull_ranges(pace.side_by_side ? side_by_side(wanted) : wanted, work, pace);
}

void pull_ranges(const std::vector<PulledRanges>& wanted, const Work& work, const PullPace& pace) {
  for (const auto& layer : wanted)
    for (const auto& range : layer.ranges) work.progress.expect(range.length);
  PacedPull pull(work, pace);
  for (const auto& layer : wanted)
    for (const auto& range : layer.ranges) pull.want(*layer.stream, range);
  pull.wait();
}

}  // namespace varve::fuse
