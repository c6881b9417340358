#pragma once
#include <filesystem>
#include <optional>

#include "core/index/format/image_index.h"

namespace varve::fuse {

// Which index blobs describe the layers that were ever opened here, so that the store can be verified without images
// and registries. One small file per layer and map (docs/mounts.md "What is cached where"). Safe to use from any thread
// and process.
class KnownLayers {
 public:
  // Creates the folder.
  explicit KnownLayers(std::filesystem::path dir);
  void remember(const index::LayerIndexBlobs& blobs);
  // Absent if it is not known or its file is damaged. Without a map: what a version before 0.3 remembered.
  std::optional<index::LayerIndexBlobs> find(const Digest& layer, const std::optional<Digest>& map) const;

 private:
  std::filesystem::path file_of(const Digest& layer, const std::optional<Digest>& map) const;
  std::filesystem::path dir_;
};

}  // namespace varve::fuse
