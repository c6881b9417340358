#pragma once
// Fetches layers or parts of them for nobody in particular, behind readers.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/work.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

class ServedImage;

// A layer, and what of it shall stay where it is: stream side, in order, not overlapping.
struct PulledLayer {
  std::shared_ptr<LayerStream> stream;
  std::vector<ByteRange> left_out;
};

// All layers of an image, without what is cold or with it.
std::vector<PulledLayer> layers_to_pull(const ServedImage& image, bool cold);

// That the streams, each named once, have fetched since they were opened.
std::uint64_t fetched_bytes_of(const std::vector<std::shared_ptr<LayerStream>>& streams);

// How a pull shares the link.
struct PullPace {
  std::uint64_t piece_bytes = 8 << 20;  // stream side; spans of neighbours become one request below
  std::uint64_t max_pieces = 8;         // wanted at a time: a reader that comes in between shares the link with these
  // Of every layer the same share at a time: what compresses well keeps the processors busy, what does not the link,
  // and often either has a layer of its own. Else one after the other, so that the first are soon read without a
  // process.
  bool side_by_side = true;
  // While it says so, no further piece is wanted; but for long enough that a fifth of the time is this pull's. May be
  // empty.
  std::function<bool()> somebody_waits = {};
};

// Fetches all that is missing of the layers, behind readers, but for spans that lie wholly in what is left out. Returns
// when all is here; throws Cancelled soon after it is cancelled, and the first error of a fetch. What was fetched until
// then stays. Progress counts stream bytes of what is wanted, here already or not.
void pull_layers(const std::vector<PulledLayer>& layers, const Work& work, const PullPace& pace = {});

// The same for ranges of layers, in the order in which they are given.
struct PulledRanges {
  std::shared_ptr<LayerStream> stream;
  std::vector<ByteRange> ranges;  // inside the stream
};
void pull_ranges(const std::vector<PulledRanges>& wanted, const Work& work, const PullPace& pace = {});

}  // namespace varve::fuse
