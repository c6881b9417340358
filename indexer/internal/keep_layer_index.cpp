#include "indexer/internal/keep_layer_index.h"

#include "core/trust/tool_version.h"

namespace varve::indexer {

index::LayerIndexBlobs keep_layer_index(index::LocalIndex& local, const oci::Descriptor& layer,
                                        const IndexedLayer& indexed) {
  auto& kept = local.repository();
  index::LayerIndexBlobs blobs;
  blobs.layer_digest = layer.digest;
  blobs.tool = trust::this_tool();
  blobs.map = oci::put_bytes(kept, indexed.map.encode(), index::kLayerMapMediaType);
  if (!indexed.windows.empty()) blobs.windows = oci::put_bytes(kept, indexed.windows, index::kWindowsMediaType);
  blobs.entries = oci::put_bytes(kept, indexed.entries.encode(), index::kEntriesMediaType);
  local.origins().note_built_here(keep_layer_manifest(local, layer, blobs));
  return blobs;
}

Digest keep_layer_manifest(index::LocalIndex& local, const oci::Descriptor& layer,
                           const index::LayerIndexBlobs& blobs) {
  auto& kept = local.repository();
  const auto manifest = index::make_layer_manifest(layer, blobs).to_json();
  oci::put_bytes(kept, oci::empty_json(), oci::kEmptyJsonType);
  return kept.put_manifest(manifest, oci::kOciManifestType, "").digest;
}

}  // namespace varve::indexer
