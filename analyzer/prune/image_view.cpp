#include "analyzer/prune/image_view.h"

#include <utility>

#include "core/base/errors.h"

namespace varve::prune {
namespace {

constexpr std::uint64_t kMaxLoaderCacheBytes = 64u << 20;

void need_elf_facts(const LoaderView& image) {
  if (!image.tree.has_elf_facts)
    fail<Unsupported>(
        "the index of {} was made by a Varve that looked at no ELF files: `varve index --force` makes it anew",
        image.image.to_string());
}

}  // namespace

elf::Loader loader_of(const LoaderView& image) {
  need_elf_facts(image);
  return elf::Loader(image.tree, {.library_path = cuda::library_path_of(image.config_json), .cache = image.ld_cache});
}

cuda::Manifest cuda_manifest(const LoaderView& image) {
  need_elf_facts(image);
  return cuda::make_manifest(image.tree, image.ld_cache, cuda::built_in_rules(), image.config_json, image.image);
}

ImageView::ImageView(std::string reference, const index::OpenedImage& opened)
    : reference_(std::move(reference)), opened_(opened), inventory_(packages::read_inventory(opened)) {
  opened.read({"etc/ld.so.cache"}, kMaxLoaderCacheBytes, [&](const std::string&, std::optional<Bytes> content) {
    if (content) ld_cache_ = as_text(*content);
  });
}

const cuda::Manifest& ImageView::cuda_manifest() const {
  if (!cuda_) cuda_ = prune::cuda_manifest(loader_view());
  return *cuda_;
}

cuda::Selection ImageView::cuda_selection() const {
  return cuda::select_cuda(tree(), loader(), cuda::built_in_rules());
}

}  // namespace varve::prune
