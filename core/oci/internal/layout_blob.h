#pragma once
#include <filesystem>

#include "core/base/unique_fd.h"

namespace varve::oci::internal {

// A blob that appears in a layout folder whole or not at all. Unlike a temporary file, it leaves nothing behind when
// the process is killed: the file has no name (O_TMPFILE) until it is complete. Where the file system cannot do that,
// it is written under a temporary name, which is removed on failure.
class LayoutBlobFile {
 public:
  explicit LayoutBlobFile(std::filesystem::path final_path);
  // The blob's name is not known yet; `dir` is where it will be.
  static LayoutBlobFile without_name(const std::filesystem::path& dir) { return LayoutBlobFile(dir / "draft"); }
  ~LayoutBlobFile();
  LayoutBlobFile(const LayoutBlobFile&) = delete;
  LayoutBlobFile& operator=(const LayoutBlobFile&) = delete;

  int fd() const { return fd_.get(); }
  // Synced and visible under its name; what was there before (of another size, or broken) is replaced.
  void commit();
  // The same, now that its name is known, in the same folder.
  void commit(std::filesystem::path final_path);

 private:
  std::filesystem::path final_path_;
  std::filesystem::path temporary_path_;  // "" while the file has no name
  UniqueFd fd_;
};

}  // namespace varve::oci::internal
