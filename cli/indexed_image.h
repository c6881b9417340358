#pragma once
// An image opened together with its index, for the commands that look into it.
#include <string>

#include "cli/command.h"
#include "core/index/local_index.h"

namespace varve::cli {

struct IndexedImage {
  // Throws NotFound with what to do if the image has no index.
  IndexedImage(const Context& context, const std::string& reference);

  // The inode of a path in the image, symbolic links followed unless `follow_last` is false and it is the last part. Throws NotFound.
  index::Nid find(const std::string& path, bool follow_last = true) const;
  // Serves the windows of gzip layers: the local index if it has them all, else the image's repository.
  oci::Repository& windows() const { return *windows_; }

  oci::Image image;
  index::LocalIndex local;
  index::LoadedIndex index;

 private:
  oci::Repository* windows_;
};

}  // namespace varve::cli
