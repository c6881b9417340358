#include "cli/indexed_image.h"

#include "core/base/progress.h"
#include "core/base/safe_text.h"
#include "indexer/index_image.h"

namespace varve::cli {

namespace {

bool is_vouched_for(index::LocalIndex& local, const oci::Image& image) {
  std::vector<std::string> refusals;
  const auto index = local.find_trusted(image, refusals);
  return index && index->judgement.vouched;
}

}  // namespace

void index_here_if_others_did(const Context& context, const std::string& reference) {
  const auto image = context.open_image(reference);
  auto local = context.local_index();
  if (!is_vouched_for(local, image) && index::find_index(*image.repository, image)) index_here(context, reference);
}

void index_here(const Context& context, const std::string& reference) {
  const auto image = context.open_image(reference);
  auto local = context.local_index();
  if (is_vouched_for(local, image)) return;
  Progress progress;
  const ProgressLine line(progress, "index", context.global.quiet);
  indexer::index_image(image, local.repository(), local, {}, {progress, context.cancel});
}

IndexedImage::IndexedImage(const Context& context, const std::string& reference)
    : image(context.open_image(reference)), local(context.local_index()), index(index::load_index(local, image)) {
  windows_ = &index::windows_repository(local, index, image);
}

index::Nid IndexedImage::find(const std::string& path, bool follow_last) const {
  const auto nid = index.tree->resolve(path, follow_last);
  if (!nid) fail<NotFound>("{}: no such file in {}", printable(path), image.digest().to_string());
  return *nid;
}

}  // namespace varve::cli
