#pragma once
// Paths inside a foreign root folder, resolved as its own processes would see them: absolute symlinks and ".." stay
// inside. An image can hold any symlink, so nothing in it is ever opened by a plain path.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// A folder taken as "/". A resource; the folder must stay what it is while this lives. Safe to use from any thread.
class Rootfs {
 public:
  // Throws std::system_error if it is no folder.
  static Rootfs open(const std::string& folder);

  // Opens an existing path; absent if it does not exist. `flags` as of open(2); O_CLOEXEC is added. Throws
  // std::system_error.
  std::optional<UniqueFd> open_path(std::string_view path, int flags) const;
  // As open_path(), of a path that ensure() gave: a symlink anywhere in it is an error.
  std::optional<UniqueFd> open_plain(std::string_view path, int flags) const;
  // Where a path leads whose symlinks all stay beneath this folder (O_PATH); absent if there is nothing. Throws
  // std::system_error.
  std::optional<UniqueFd> open_beneath(std::string_view path) const;
  // A regular file, to be read; absent if there is none of that name. Throws std::system_error.
  std::optional<UniqueFd> open_regular(std::string_view path) const;
  // The content of a regular file; absent if there is none of that name. Throws Unsupported if it is larger than
  // `limit_bytes`.
  std::optional<Bytes> read_file(std::string_view path, std::uint64_t limit_bytes) const;

  struct Folder {
    std::uint64_t inode = 0;
    std::vector<std::string> names;  // in any order, without "." and ".."
  };
  // Absent if there is no such folder, or none that can be read. Throws as open_path().
  std::optional<Folder> list(std::string_view path) const;

  struct NewFile {
    bool folder = true;
    mode_t mode = 0755;
    uid_t uid = 0;
    gid_t gid = 0;
  };
  // Makes the path and its parents where they are missing, through dangling symlinks too, and returns it free of
  // symlinks ("/a/b"). What is there already stays as it is; it may be a file though a folder was asked for. Throws
  // std::system_error, or CorruptData for a loop of symlinks.
  std::string ensure(std::string_view path, const NewFile& wanted) const;

  int fd() const { return fd_.get(); }

 private:
  explicit Rootfs(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}
  UniqueFd fd_;
  std::string name_;
};

}  // namespace varve::fuse
