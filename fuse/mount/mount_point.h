#pragma once
// Where root mounts something for a user: in a folder that others may be able to rename parts of.
#include <filesystem>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// An empty folder, held open: whoever swaps a part of its path for a link meanwhile turns no mount elsewhere.
class MountPoint {
 public:
  // `dir`: a full path without links. Throws std::system_error; UsageError if it is no folder, is not empty, or was
  // reached by a link after all.
  explicit MountPoint(std::filesystem::path dir);

  // Shows there what is mounted at `from`. Throws std::system_error, and UsageError if the folder no longer is
  // there; then nothing is mounted.
  void bind(const std::filesystem::path& from) const;

 private:
  void check_place() const;

  std::filesystem::path dir_;
  UniqueFd folder_;
};

}  // namespace varve::fuse
