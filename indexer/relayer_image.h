#pragma once
// Writes an image whose layers hold what is used together. The merged tree stays what it was, entry by entry, apart from what the placement
// removes and adds; the config stays but for diff_ids and history.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/progress.h"
#include "core/index/flat_tree.h"
#include "core/index/placement.h"
#include "indexer/layer_writer.h"
#include "indexer/pack_layers.h"

namespace varve::indexer {

struct RelayerOptions {
  LayerWriterOptions writer;
  PackLimits limits;
  std::optional<std::vector<std::uint32_t>> take_over;  // layers that stay; absent: those that are worth it (docs/relayering.md)
  std::filesystem::path work_dir;      // for finished layers until they are sent
  std::map<std::string, std::string> labels;  // added to the config: ours
};

struct RelayeredLayer {
  Digest digest, diff_id;
  std::uint64_t bytes = 0;             // compressed
  std::uint64_t stream_bytes = 0;
  index::Heat heat = index::Heat::kSystem;
  bool taken_over = false;             // of the old image
  bool reused = false;                 // of the previous version, or of a run that was stopped
  std::vector<std::string> components;
  double seconds = 0;
};

struct RelayerReport {
  Digest old_image, image;
  std::vector<RelayeredLayer> layers;  // base first
  std::uint64_t reused_bytes = 0;      // of blobs taken over or reused
  std::uint64_t new_bytes = 0;
};

struct RelayerInput {
  const oci::Image& image;
  const index::LoadedIndex& index;
  oci::Repository& windows;            // index::windows_repository
  const index::FlatTree& tree;
  const index::Placement& placement;
  const oci::Image* previous = nullptr;       // the image's last version as we wrote it, and how it was packed: its layers are used again
  const LayoutRecord* previous_layout = nullptr;
};

// The image is visible at the destination only when all of it is there, and under `tag` only if that is not "". Its layout record goes along. A run that was stopped
// does not write again what arrived.
RelayerReport relayer_image(const RelayerInput& input, oci::Repository& destination, std::string_view tag, const RelayerOptions& options, Progress& progress,
                            const CancelFlag& cancel);

}  // namespace varve::indexer
