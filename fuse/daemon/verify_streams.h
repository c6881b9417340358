#pragma once
// Whether what the store holds is still right.
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/work.h"
#include "core/index/local_index.h"
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

// The map that a folder of the store belongs to. Folders of versions before 0.3 do not name theirs: the one that this
// machine has made of the layer is taken.
std::optional<Digest> map_of(const StoredLayer& stored, index::LocalIndex& local);

// A layer of the store by its map alone; what is missing of it is not fetched. Null if the map is not on this machine.
// `root`: of the local index.
std::shared_ptr<LayerStream> open_stored_stream(LayerStreams& streams, const StoredLayer& stored, const Digest& map,
                                                const std::filesystem::path& root);
// All layers of the store, each opened by its map alone: digests need no registry. One whose map is not on this machine
// is left out with a warning. `root` is that of `local`.
std::vector<std::shared_ptr<LayerStream>> open_stored_streams(LayerStreams& streams, index::LocalIndex& local,
                                                              const std::filesystem::path& root);

}  // namespace varve::fuse
