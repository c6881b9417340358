#include "fuse/daemon/pull.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/index/format/cold_ranges.h"
#include "fuse/stream/pieces_under_way.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kPieceBytes = 8 << 20;  // stream side; spans of neighbours become one request below
constexpr std::uint64_t kMaxPieces =
    8;  // wanted at a time: a reader that comes in between waits for no more than these

void throw_if(const std::function<bool()>& stop_wanted) {
  if (stop_wanted()) throw Cancelled("pull: stopped");
}

void want_in_pieces(PiecesUnderWay& under_way, LayerStream& stream, ByteRange wanted) {
  for (auto offset = wanted.offset; offset < wanted.end(); offset += kPieceBytes) {
    const ByteRange piece{offset, std::min(kPieceBytes, wanted.end() - offset)};
    if (!stream.is_readable(piece)) under_way.want(stream, piece, 1);
  }
}

class Pull {
 public:
  Pull(const std::vector<PulledLayer>& layers, const ProgressCallback& progress,
       const std::function<bool()>& stop_wanted)
      : layers_(layers), progress_(progress), stop_wanted_(stop_wanted) {}

  void run() {
    PiecesUnderWay under_way(Priority::kBackground, kMaxPieces, [this] {
      throw_if(stop_wanted_);
      report();
    });
    for (const auto& layer : layers_) {
      for (const auto& wanted : wanted_of(layer)) want_in_pieces(under_way, *layer.stream, wanted);
    }
    under_way.wait();
    report();
  }

 private:
  // All but the spans that may stay away; one that is cold only in part is wanted.
  static std::vector<ByteRange> wanted_of(const PulledLayer& layer) {
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

  void report() const {
    if (!progress_) return;
    std::uint64_t present = 0, expected = 0;
    for (const auto& layer : layers_) {
      const auto stats = layer.stream->stats();
      const auto cold = cold_bytes_of(*layer.stream, layer.left_out);
      present += stats.present_bytes - std::min(stats.present_bytes, cold.present_bytes);
      expected += stats.stream_bytes - cold.bytes;
    }
    progress_(present, expected);
  }

  const std::vector<PulledLayer>& layers_;
  const ProgressCallback& progress_;
  const std::function<bool()>& stop_wanted_;
};

}  // namespace

void pull_layers(const std::vector<PulledLayer>& layers, const ProgressCallback& progress,
                 const std::function<bool()>& stop_wanted) {
  Pull(layers, progress, stop_wanted).run();
}

void pull_ranges(const std::vector<PulledRanges>& wanted, const ProgressCallback& progress,
                 const std::function<bool()>& stop_wanted) {
  std::uint64_t expected = 0;
  for (const auto& layer : wanted) {
    for (const auto& range : layer.ranges) expected += range.length;
  }
  std::uint64_t passed = 0;
  PiecesUnderWay under_way(Priority::kBackground, kMaxPieces, [&] {
    throw_if(stop_wanted);
    if (progress) progress(passed, expected);
  });
  for (const auto& layer : wanted) {
    for (const auto& range : layer.ranges) {
      want_in_pieces(under_way, *layer.stream, range);
      passed += range.length;
    }
  }
  under_way.wait();
  if (progress) progress(expected, expected);
}

}  // namespace varve::fuse
