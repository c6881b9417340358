#pragma once
// An opened image with all that plans, gates and rewriting look at beside its tree: what is installed, what its loader
// finds, what of it is CUDA.
#include <optional>
#include <string>

#include "analyzer/cuda/manifest.h"
#include "analyzer/cuda/rules.h"
#include "analyzer/elf/loader.h"
#include "analyzer/packages/inventory.h"
#include "core/index/opened_image.h"

namespace varve::prune {

// An image as the dynamic loader finds it.
struct LoaderView {
  const index::FlatTree& tree;
  std::string ld_cache;  // content of etc/ld.so.cache; "" = none
  ByteView config_json;
  Digest image;
};

// Both throw Unsupported for an index that knows nothing of ELF files. The loader refers to the tree.
elf::Loader loader_of(const LoaderView& image);
cuda::Manifest cuda_manifest(const LoaderView& image);  // by the built-in rules

// Not shared between threads. The opened image must outlive it.
class ImageView {
 public:
  // `reference`: what the image is called in messages, and how sessions find it.
  ImageView(std::string reference, const index::OpenedImage& opened);
  ImageView(const ImageView&) = delete;
  ImageView& operator=(const ImageView&) = delete;

  const std::string& reference() const { return reference_; }
  const index::OpenedImage& opened() const { return opened_; }
  const Digest& digest() const { return opened_.digest(); }
  const index::FlatTree& tree() const { return opened_.tree(); }
  const packages::Inventory& inventory() const { return inventory_; }
  LoaderView loader_view() const { return {tree(), ld_cache_, opened_.image().config_json, digest()}; }
  // These throw as loader_of() does. The loader refers to the tree.
  elf::Loader loader() const { return loader_of(loader_view()); }
  cuda::Selection cuda_selection() const;
  // Made at the first call.
  const cuda::Manifest& cuda_manifest() const;

 private:
  std::string reference_;
  const index::OpenedImage& opened_;
  packages::Inventory inventory_;
  std::string ld_cache_;
  mutable std::optional<cuda::Manifest> cuda_;
};

}  // namespace varve::prune
