#pragma once
// Layers that cannot be entered in the middle (one zstd frame): the whole blob is decoded from its start.
#include <atomic>
#include <functional>
#include <memory>

#include "core/oci/repository.h"
#include "fuse/stream/fetch_layer.h"

namespace varve::fuse {

// Streams the blob from `repository` once, verifying each span that the store lacks and putting it there; `on_span` is
// called for each span as soon as it is readable. Stops early when nothing is missing. Throws CorruptData if the stream
// does not match the map, Cancelled once `stopping` is set, and what the repository throws; spans put until then stay.
void stream_whole_blob(FetchLayer& layer, oci::Repository& repository, const std::atomic<bool>& stopping,
                       const std::function<void(std::size_t span, SpanStore::Hold hold)>& on_span);

}  // namespace varve::fuse
