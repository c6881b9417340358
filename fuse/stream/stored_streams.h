#pragma once
// Layers of the store without their images: what is here can be read, checked and handed on; nothing is fetched.
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/index/local_index.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

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
