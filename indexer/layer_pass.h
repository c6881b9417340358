#pragma once
// One streaming pass over a layer: decodes it once and makes everything that is known about it, checking it on the way.
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/work.h"
#include "core/index/format/layer_entries.h"
#include "core/index/format/layer_map.h"
#include "core/oci/repository.h"
#include "indexer/read_model.h"
#include "indexer/span_planner.h"

namespace varve::indexer {

// What a pass keeps in memory beside the entries, windows and digests it makes, at most; four threads work on it.
inline constexpr std::uint64_t kPassMemoryBytes = 40ull * 1024 * 1024;

struct LayerPassOptions {
  SpanPolicy policy;
  ReadExpectations expectations;
  std::uint64_t max_stream_bytes = index::kMaxStreamBytes;  // a layer that inflates beyond it is refused
};

// Called between buffers; throws to stop the pass.

struct IndexedLayer {
  index::LayerMap map;
  Bytes windows;  // the windows blob; empty if no span needs one
  index::LayerEntries entries;
};

// Reads the layer once (a zstd layer with single frames too long for spans: twice). The result depends on the layer's
// bytes and the options alone. Throws CorruptData naming the layer if its digest, its size, its diff_id, a member's
// checksum or its tar is wrong, Unsupported beyond limits, and what read_blob() throws.
IndexedLayer index_layer(oci::Repository& repository, const oci::Descriptor& layer, const Digest& diff_id,
                         const LayerPassOptions& options, const Work& work);

}  // namespace varve::indexer
