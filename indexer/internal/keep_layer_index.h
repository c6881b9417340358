#pragma once
// Puts what a pass made of a layer where merging, mounts and later runs find it.
#include "core/index/local_index.h"
#include "indexer/layer_pass.h"

namespace varve::indexer {

// Blobs first, then the manifest that names them, noted as built here.
index::LayerIndexBlobs keep_layer_index(index::LocalIndex& local, const oci::Descriptor& layer,
                                        const IndexedLayer& indexed);
// The manifest alone, where the blobs are. Returns its digest.
Digest keep_layer_manifest(index::LocalIndex& local, const oci::Descriptor& layer, const index::LayerIndexBlobs& blobs);

}  // namespace varve::indexer
