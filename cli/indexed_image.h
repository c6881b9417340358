#pragma once
// An image opened together with its index, for the commands that look into it.
#include <string>

#include "cli/command.h"
#include "core/index/local_index.h"

namespace varve::cli {

inline constexpr const char* kIndexHereHelp =
    "Have this machine make the image's index itself, from all its layers, unless one counts here already";

// Makes an index of the image in the local root alone, unless one is here that is vouched for (built here, proved,
// signed): streams the layers once, and checks their digests and diff_ids.
void index_here(const Context& context, const std::string& reference);
// The same where there is an index that others have made: for commands that write what it says, or judge by it. Without
// any index it does nothing.
void index_here_if_others_did(const Context& context, const std::string& reference);

struct IndexedImage {
  // Throws NotFound with what to do if the image has no index.
  IndexedImage(const Context& context, const std::string& reference);

  // The inode of a path in the image, symbolic links followed unless `follow_last` is false and it is the last part.
  // Throws NotFound.
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
