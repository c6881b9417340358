#pragma once
// Whether what the store holds is still right.
#include <functional>
#include <memory>
#include <vector>

#include "core/base/work.h"
#include "fuse/control/control_messages.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// Called with spans of a layer that are damaged, before they are fetched anew. True if it is mounted.
using OnDamaged = std::function<bool(const LayerStream& stream, const std::vector<ByteRange>& bad)>;

// Re-digests what is here of the layers; what is wrong is dropped, and fetched at once where the layer is mounted: a
// complete one may be mounted straight from its store file, where a hole would read as zeros. It is cancelled between
// layers.
VerifyResult verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams, const OnDamaged& on_damaged,
                            const Work& work);

// Makes a range readable; waits for it. False, with a line in the log, if that fails.
bool fetch_anew(LayerStream& stream, ByteRange range);

}  // namespace varve::fuse
