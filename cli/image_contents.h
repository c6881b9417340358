#pragma once
// An indexed image with all that plans, gates and rewriting look at: its merged tree, its files, what is installed,
// what its loader finds.
#include <memory>
#include <optional>
#include <string>

#include "analyzer/cuda/rules.h"
#include "analyzer/packages/image_source.h"
#include "analyzer/packages/inventory.h"
#include "analyzer/prune/gates.h"
#include "cli/indexed_image.h"

namespace varve::cli {

// Memory: the tree. Not shared between threads.
class ImageContents {
 public:
  // Throws NotFound with what to do if it has no index.
  ImageContents(const Context& context, const std::string& reference);

  const std::string& reference() const { return reference_; }
  std::string by_digest() const;  // a reference to this very image, whatever its tag becomes
  const IndexedImage& opened() const { return *opened_; }
  IndexedImage& opened() { return *opened_; }
  const Digest& digest() const { return opened_->image.digest(); }
  const index::FlatTree& tree() const { return tree_; }
  const packages::FileSource& files() const { return *files_; }
  const packages::Inventory& inventory() const { return inventory_; }
  prune::LoaderView loader_view() const { return {tree_, ld_cache_, opened_->image.config_json, digest()}; }
  // Both need ELF facts in the index. The loader refers to the tree.
  elf::Loader loader() const;
  cuda::Selection cuda_selection() const;
  // Made at the first call. Throws CouldNotRun as prune::cuda_manifest() does.
  const cuda::Manifest& cuda_manifest() const;

 private:
  std::string reference_;
  std::unique_ptr<IndexedImage> opened_;
  index::FlatTree tree_;
  std::unique_ptr<packages::ImageSource> files_;
  packages::Inventory inventory_;
  std::string ld_cache_;
  mutable std::optional<cuda::Manifest> cuda_;
};

// The same place, and this very image in it.
std::string by_digest(oci::Reference reference, const Digest& digest);

}  // namespace varve::cli
