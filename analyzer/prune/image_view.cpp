#include "analyzer/prune/image_view.h"

#include <utility>

namespace varve::prune {
namespace {

constexpr std::uint64_t kMaxLoaderCacheBytes = 64u << 20;

}  // namespace

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

elf::Loader ImageView::loader() const {
  return elf::Loader(tree(), {.library_path = cuda::library_path_of(opened_.image().config_json), .cache = ld_cache_});
}

cuda::Selection ImageView::cuda_selection() const {
  return cuda::select_cuda(tree(), loader(), cuda::built_in_rules());
}

}  // namespace varve::prune
