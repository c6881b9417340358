#pragma once
// One streaming pass over a layer: decodes it once and makes everything that is known about it, checking it on the way.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

// The same pass over a layer that is being written: it is given the blob's bytes as they are made, and works on threads
// of its own. Not shared between threads.
class WrittenLayerPass {
 public:
  // `what` names the layer in messages.
  WrittenLayerPass(std::string what, const LayerPassOptions& options);
  ~WrittenLayerPass();  // stops a pass that is not finished
  WrittenLayerPass(const WrittenLayerPass&) = delete;
  WrittenLayerPass& operator=(const WrittenLayerPass&) = delete;

  // The next bytes of the blob. Waits while the pass is far behind. Throws what the pass threw.
  void feed(ByteView compressed);
  // After the last byte. The caller vouches for the digest: it has seen all bytes go by. The result is index_layer()'s;
  // absent if that would have to read the layer twice. Throws CorruptData for another diff_id, and what the pass threw.
  std::optional<IndexedLayer> finish(const Digest& layer, const Digest& diff_id);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve::indexer
