#include "cli/base/open_image.h"

#include <filesystem>

#include "analyzer/packages/folder_source.h"
#include "analyzer/packages/image_source.h"
#include "cli/base/text.h"
#include "core/base/log.h"
#include "core/index/index_sources.h"
#include "indexer/index_image.h"

namespace varve::cli {
namespace {

bool is_vouched_for(index::LocalIndex& local, const oci::Image& image) {
  std::vector<std::string> refusals;
  const auto index = local.find_trusted(image, refusals);
  return index && index->judgement.vouched;
}

}  // namespace

oci::Image Context::open_image(const std::string& reference) const {
  return oci::open_image(oci::ImageRequest::parse(reference, global.platform, global.registry));
}

index::LocalIndex Context::local_index() const { return index::LocalIndex(global.root, global.trust); }

void index_here_if_others_did(const Context& context, const std::string& reference) {
  const auto image = context.open_image(reference);
  auto local = context.local_index();
  if (!is_vouched_for(local, image) && index::find_offered(image)) index_here(context, reference);
}

void index_here(const Context& context, const std::string& reference) {
  const auto image = context.open_image(reference);
  auto local = context.local_index();
  if (is_vouched_for(local, image)) return;
  Progress progress;
  const ProgressLine line(progress, "index", context.global.quiet);
  indexer::index_image(image, local.repository(), local, {}, {progress, context.cancel});
}

index::OpenedImage open_indexed(const Context& context, const std::string& reference, index::IndexPlace place) {
  return {context.local_index(), context.open_image(reference), place};
}

bool is_plain_folder(const std::string& what) {
  std::error_code none;
  return !what.starts_with("oci:") && !what.starts_with("docker://") && std::filesystem::is_directory(what, none);
}

std::unique_ptr<index::FileSource> open_files(const Context& context, const std::string& what, Progress& progress) {
  if (is_plain_folder(what)) {
    const auto platform = context.global.platform.empty() ? oci::Platform::of_this_machine()
                                                          : oci::Platform::parse(context.global.platform);
    return packages::open_folder(what, platform.normalised().architecture);
  }
  auto image = context.open_image(what);
  try {
    return std::make_unique<index::OpenedImage>(context.local_index(), image);
  } catch (const NotFound&) {
    log::info("{}: not indexed: reading all of its layers; after `varve index {}` only little is read", what, what);
  }
  return packages::read_image(std::move(image), {progress, context.cancel});
}

index::Nid find_file(const index::OpenedImage& image, const std::string& path, bool follow_last) {
  const auto nid = image.index().tree->resolve(path, follow_last);
  if (!nid) fail<NotFound>("{}: no such file in {}", printable(path), image.digest().to_string());
  return *nid;
}

std::string by_digest(oci::Reference reference, const Digest& digest) {
  reference.tag.reset();
  reference.digest = digest;
  return reference.to_string();
}

}  // namespace varve::cli
