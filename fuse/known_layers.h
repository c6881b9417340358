#pragma once
#include <filesystem>
#include <optional>

#include "core/index/image_index.h"

namespace varve::fuse {

// Which index blobs describe the layers that were ever opened here, so that the store can be verified without images and registries.
// One small file per layer (docs/mounts.md "What is cached where"). Safe to use from any thread and process.
class KnownLayers {
 public:
  // Creates the folder.
  explicit KnownLayers(std::filesystem::path dir);
  void remember(const index::LayerIndexBlobs& blobs);
  // Absent if it is not known or its file is damaged.
  std::optional<index::LayerIndexBlobs> find(const Digest& layer) const;

 private:
  std::filesystem::path dir_;
};

}  // namespace varve::fuse
