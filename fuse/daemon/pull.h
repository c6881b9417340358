#pragma once
// Fetches layers or parts of them for nobody in particular, behind readers.
#include <memory>
#include <vector>

#include "core/base/work.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// A layer, and what of it shall stay where it is: stream side, in order, not overlapping.
struct PulledLayer {
  std::shared_ptr<LayerStream> stream;
  std::vector<ByteRange> left_out;
};

// Fetches all that is missing of the layers, behind readers, but for spans that lie wholly in what is left out. Returns
// when all is here; throws Cancelled soon after it is cancelled, and the first error of a fetch. What was fetched until
// then stays. Progress counts stream bytes of what is wanted, here already or not.
void pull_layers(const std::vector<PulledLayer>& layers, const Work& work);

// The same for ranges of layers, in the order in which they are given.
struct PulledRanges {
  std::shared_ptr<LayerStream> stream;
  std::vector<ByteRange> ranges;  // inside the stream
};
void pull_ranges(const std::vector<PulledRanges>& wanted, const Work& work);

}  // namespace varve::fuse
