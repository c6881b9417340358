#pragma once
// What a repack that was stopped has finished already.
#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/digest.h"
#include "indexer/layer_writer.h"

namespace varve::indexer {

// Remembers what a layer with some content became: a small file in the work folder, so that a run that was stopped
// finds it at the destination.
class FinishedLayers {
 public:
  // The folder is made if it is not there.
  explicit FinishedLayers(std::filesystem::path dir);

  // Absent too if its file cannot be read: then the layer is written again.
  std::optional<WrittenLayer> find(const Digest& key) const;
  void remember(const Digest& key, const WrittenLayer& layer);
  void used(const Digest& key) { remembered_.push_back(key); }
  // The image is whole: nobody needs to find them any more.
  void forget();

 private:
  std::filesystem::path file(const Digest& key) const { return dir_ / (key.hex() + ".json"); }
  std::filesystem::path dir_;
  std::vector<Digest> remembered_;
};

}  // namespace varve::indexer
