#include "fuse/daemon/pull.h"

#include <algorithm>

#include "core/index/format/cold_ranges.h"
#include "fuse/stream/pieces_under_way.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kPieceBytes = 8 << 20;  // stream side; spans of neighbours become one request below
constexpr std::uint64_t kMaxPieces =
    8;  // wanted at a time: a reader that comes in between waits for no more than these

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

void want_in_pieces(PiecesUnderWay& under_way, LayerStream& stream, ByteRange wanted, Progress& progress) {
  for (auto offset = wanted.offset; offset < wanted.end(); offset += kPieceBytes) {
    const ByteRange piece{offset, std::min(kPieceBytes, wanted.end() - offset)};
    const auto arrived = [&progress, bytes = piece.length] { progress.add(bytes); };
    if (stream.is_readable(piece))
      arrived();
    else
      under_way.want(stream, piece, 1, arrived);
  }
}

}  // namespace

void pull_layers(const std::vector<PulledLayer>& layers, const Work& work) {
  std::vector<PulledRanges> wanted;
  for (const auto& layer : layers) wanted.push_back({.stream = layer.stream, .ranges = wanted_of(layer)});
  pull_ranges(wanted, work);
}

void pull_ranges(const std::vector<PulledRanges>& wanted, const Work& work) {
  for (const auto& layer : wanted)
    for (const auto& range : layer.ranges) work.progress.expect(range.length);
  PiecesUnderWay under_way(Priority::kBackground, kMaxPieces, &work.cancel);
  for (const auto& layer : wanted)
    for (const auto& range : layer.ranges) want_in_pieces(under_way, *layer.stream, range, work.progress);
  under_way.wait();
}

}  // namespace varve::fuse
