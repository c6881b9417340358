#pragma once
// Layers that cannot be entered in the middle (one zstd frame): the whole blob is decoded from its start.
#include <atomic>
#include <functional>
#include <memory>

#include "core/oci/repository.h"
#include "fuse/stream/fetch_layer.h"

namespace varve::fuse {

// Streams the blob from `repository` once; `on_span` is called with the verified bytes of each span. Stops early when
// the store has all. Throws CorruptData if the stream does not match the map, Cancelled once `stopping` is set, and
// what the repository and `on_span` throw.
void stream_whole_blob(FetchLayer& layer, oci::Repository& repository, const std::atomic<bool>& stopping,
                       const std::function<void(std::size_t span, ByteView stream)>& on_span);

}  // namespace varve::fuse
