#pragma once
// Rewrites the layers of an image so that they can be entered anywhere by every tool: see layer_writer.h. Nothing but
// the compression changes: the config, and with it the image's ID and every diff_id, stays byte for byte.
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/work.h"
#include "core/oci/image.h"
#include "indexer/layer_writer.h"

namespace varve::indexer {

struct OptimizeOptions {
  LayerWriterOptions writer;
  unsigned keep_layers = 0;  // so many of the lowest stay as they are, and so shared with other images of their base
  bool force = false;        // layers that have the form already are written anew all the same
  std::filesystem::path work_dir;  // for one layer's blob at a time
};

struct OptimizedLayer {
  Digest diff_id;
  Digest old_digest, digest;
  std::uint64_t old_bytes = 0, bytes = 0;  // compressed
  std::uint64_t stream_bytes = 0;          // 0 if kept
  bool kept = false;                       // the blob is the old one
  std::string without_table;               // WrittenLayer's
  double seconds = 0;
};

struct OptimizeReport {
  Digest old_image, image;
  std::vector<OptimizedLayer> layers;  // base first
  std::uint64_t reused_bytes = 0;      // of blobs that the destination had, or that were taken as they are
  std::uint64_t copied_bytes = 0;      // of these: that the destination did not have
  std::uint64_t new_bytes = 0;         // of blobs that were written
};

// The image is visible at the destination, under `tag`, only when all of it is there. A run that was stopped writes its
// layers again but does not send those that arrived. Throws CorruptData when a layer is not what the config says.
OptimizeReport optimize_image(const oci::Image& image, oci::Repository& destination, std::string_view tag,
                              const OptimizeOptions& options, const Work& work);

}  // namespace varve::indexer
