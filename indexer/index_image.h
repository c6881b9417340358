#pragma once
// Makes an image randomly accessible: one streaming pass per layer, a merged tree, an artifact beside the image.
// Nothing of the image is changed.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/work.h"
#include "core/index/local_index.h"
#include "core/oci/image.h"
#include "indexer/find_seeds.h"

namespace varve::indexer {

struct IndexOptions {
  unsigned jobs = 0;           // layers read at the same time; 0 = one per core. The result does not depend on it
  bool force = false;          // index layers again that were indexed before
  bool reuse_foreign = false;  // also layer indexes that others made and no trusted key signed: the result is then no
                               // word of this machine's
  std::uint64_t max_stream_bytes = index::kMaxStreamBytes;  // a layer that inflates beyond it is refused
  std::optional<index::ChosenIndex> earlier =
      std::nullopt;  // whose contents the index names as seeds; absent: those that it named before
};

struct LayerReport {
  Digest digest;
  std::string format;  // CLI.md: gzip estargz zstd zstd-chunked zstd-single tar
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  std::uint64_t spans = 0;
  bool reused = false;
  double seconds = 0;  // 0 if reused
};

struct IndexReport {
  Digest image;
  Digest index;  // manifest of the index artifact
  std::vector<LayerReport> layers;
  std::uint64_t tree_bytes = 0;  // decompressed EROFS image
  std::uint64_t index_bytes = 0;
  std::uint64_t first_load_bytes = 0;
  std::uint64_t seeded_bytes = 0;  // stream side, of new layers: what the earlier version has of them
  double seconds = 0;
};

// Keeps what it makes in `local`, layer by layer as they are done, so that a rerun goes on where it stopped; when all
// are done, publishes into `destination` (usually the image's own repository), the image's index last. Throws
// CorruptData naming the layer if its digest, its diff_id or a member's CRC does not match, Unsupported for
// nondistributable layers, Cancelled.
IndexReport index_image(const oci::Image& image, oci::Repository& destination, index::LocalIndex& local,
                        const IndexOptions& options, const Work& work);

}  // namespace varve::indexer
