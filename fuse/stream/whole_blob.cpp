#include "fuse/stream/whole_blob.h"

#include "core/base/errors.h"
#include "core/index/whole_layer.h"

namespace varve::fuse {
namespace {

// Thrown through the transfer to end it: the store has all.
struct NothingMissing {};

}  // namespace

void stream_whole_blob(FetchLayer& layer, oci::Repository& repository, const std::atomic<bool>& stopping,
                       const std::function<void(std::size_t, ByteView)>& on_span) {
  index::WholeLayerDecoder decoder(*layer.map, [&](std::size_t span, ByteView stream) {
    on_span(span, stream);
    if (layer.store.complete()) throw NothingMissing();
  });
  const bool from_here = repository.is_local();
  layer.counters.requests.fetch_add(1, std::memory_order_relaxed);
  try {
    repository.read_blob(layer.blob, {.offset = 0, .length = layer.map->compressed_bytes}, [&](ByteView bytes) {
      if (stopping) throw Cancelled("fetching is stopped");
      layer.counters.count_bytes(bytes.size(), from_here);
      decoder.feed(bytes);
    });
    decoder.finish();
  } catch (const NothingMissing&) {
  }
}

}  // namespace varve::fuse
