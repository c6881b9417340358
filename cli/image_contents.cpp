#include "cli/image_contents.h"

#include "analyzer/cuda/manifest.h"
#include "core/index/merge/flat_tree.h"

namespace varve::cli {
namespace {

const std::string kLoaderCache = "etc/ld.so.cache";

}  // namespace

ImageContents::ImageContents(const Context& context, const std::string& reference)
    : reference_(reference), opened_(std::make_unique<IndexedImage>(context, reference)) {
  auto& image = *opened_;
  tree_ = index::flatten(index::read_layer_entries(image.local, image.index, image.image));
  files_ = packages::open_indexed_image(image.image, image.index, image.local, image.windows());
  inventory_ = packages::read_inventory(*files_);
  if (files_->files().contains(kLoaderCache))
    files_->read({kLoaderCache}, packages::kMaxMetadataBytes, [&](const std::string&, std::optional<Bytes> content) {
      ld_cache_ = content ? std::string(as_text(*content)) : "";
    });
}

const cuda::Manifest& ImageContents::cuda_manifest() const {
  if (!cuda_) cuda_ = prune::cuda_manifest(loader_view());
  return *cuda_;
}

elf::Loader ImageContents::loader() const {
  return elf::Loader(tree_, {.library_path = cuda::library_path_of(opened_->image.config_json), .cache = ld_cache_});
}

cuda::Selection ImageContents::cuda_selection() const {
  return cuda::select_cuda(tree_, loader(), cuda::built_in_rules());
}

std::string ImageContents::by_digest() const { return cli::by_digest(oci::Reference::parse(reference_), digest()); }

std::string by_digest(oci::Reference reference, const Digest& digest) {
  reference.tag.reset();
  reference.digest = digest;
  return reference.to_string();
}

}  // namespace varve::cli
