#include "fuse/stream/stored_streams.h"

#include "core/base/log.h"
#include "core/index/this_index.h"

namespace varve::fuse {

std::optional<Digest> map_of(const StoredLayer& stored, index::LocalIndex& local) {
  if (stored.map) return stored.map;
  const auto blobs = local.find_layer_index(stored.layer);
  return blobs ? std::optional(blobs->map.digest) : std::nullopt;
}

std::shared_ptr<LayerStream> open_stored_stream(LayerStreams& streams, const StoredLayer& stored, const Digest& map,
                                                const std::filesystem::path& root) {
  auto found = index::find_map(root, map);
  if (!found || found->layer_digest != stored.layer) return nullptr;
  oci::Descriptor layer;
  layer.digest = stored.layer;
  layer.size = found->compressed_bytes;
  index::LayerIndexBlobs blobs;
  blobs.layer_digest = stored.layer;
  blobs.map.digest = map;
  if (stored.entries) blobs.entries.digest = *stored.entries;
  if (found->windows_bytes > 0) {
    blobs.windows.emplace();
    blobs.windows->digest = found->windows_digest;
    blobs.windows->size = found->windows_bytes;
  }
  return streams.stream(std::move(found), layer, nullptr, blobs, nullptr);
}

std::vector<std::shared_ptr<LayerStream>> open_stored_streams(LayerStreams& streams, index::LocalIndex& local,
                                                              const std::filesystem::path& root) {
  std::vector<std::shared_ptr<LayerStream>> opened;
  for (const auto& stored : streams.stored_layers()) {
    const auto map = map_of(stored, local);
    if (auto stream = map ? open_stored_stream(streams, stored, *map, root) : nullptr)
      opened.push_back(std::move(stream));
    else
      log::warn("layer {} is in the store, but its index is not on this machine; left alone", stored.layer.to_string());
  }
  return opened;
}

}  // namespace varve::fuse
