#pragma once
// The files of an image or plain folder, for the commands that read packages: opened the best way there is.
#include <memory>
#include <optional>
#include <string>

#include "analyzer/packages/image_source.h"
#include "cli/command.h"
#include "core/base/progress.h"
#include "core/index/local_index.h"
#include "core/oci/image.h"

namespace varve::cli {

// "oci:" and registries are images; what else is a folder here is one.
bool is_plain_folder(const std::string& what);

// Holds all that the source reads from, so it can neither be copied nor moved.
class ImageFiles {
 public:
  // A plain folder; an image through its index; an image without index by reading its layers, told to `progress`.
  // Context and progress must outlive it. Throws as the sources do.
  ImageFiles(const Context& context, const std::string& what, Progress& progress);
  ImageFiles(const ImageFiles&) = delete;
  ImageFiles& operator=(const ImageFiles&) = delete;

  const packages::FileSource& files() const { return *files_; }
  bool is_indexed() const { return index_.has_value(); }
  packages::FetchTally fetched() const {
    return image_files_ == nullptr ? packages::FetchTally() : image_files_->fetched();
  }

 private:
  void open_image(const Context& context, const std::string& what, Progress& progress);

  std::optional<oci::Image> image_;
  std::unique_ptr<index::LocalIndex> local_;
  std::optional<index::LoadedIndex> index_;
  std::unique_ptr<packages::FileSource> files_;
  const packages::ImageSource* image_files_ = nullptr;  // files_, if it is an image
};

}  // namespace varve::cli
