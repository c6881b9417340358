#include "cli/image_files.h"

#include <filesystem>
#include <utility>

#include "analyzer/packages/folder_source.h"
#include "core/base/errors.h"
#include "core/base/log.h"

namespace varve::cli {

bool is_plain_folder(const std::string& what) {
  std::error_code none;
  return !what.starts_with("oci:") && !what.starts_with("docker://") && std::filesystem::is_directory(what, none);
}

ImageFiles::ImageFiles(const Context& context, const std::string& what, Progress& progress) {
  if (!is_plain_folder(what)) {
    open_image(context, what, progress);
    return;
  }
  const auto platform = context.global.platform.empty() ? oci::Platform::of_this_machine()
                                                        : oci::Platform::parse(context.global.platform);
  files_ = packages::open_folder(what, platform.normalised().architecture);
}

void ImageFiles::open_image(const Context& context, const std::string& what, Progress& progress) {
  image_.emplace(context.open_image(what));
  local_ = std::make_unique<index::LocalIndex>(context.local_index());
  try {
    index_.emplace(index::load_index(*local_, *image_));
  } catch (const NotFound&) {
    log::info("{}: not indexed: reading all of its layers; after `varve index {}` only little is read", what, what);
  }
  std::unique_ptr<packages::ImageSource> files;
  if (index_) {
    files =
        packages::open_indexed_image(*image_, *index_, *local_, index::windows_repository(*local_, *index_, *image_));
  } else {
    files = packages::read_image(*image_, {progress, context.cancel});
  }
  image_files_ = files.get();
  files_ = std::move(files);
}

}  // namespace varve::cli
