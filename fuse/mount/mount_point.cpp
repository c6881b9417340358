#include "fuse/mount/mount_point.h"

#include <fcntl.h>
#include <sys/mount.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

fs::path path_of(const UniqueFd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

}  // namespace

MountPoint::MountPoint(fs::path dir) : dir_(std::move(dir)) {
  if (!fs::is_directory(dir_)) fail<UsageError>("mount at {}: not a folder", dir_.string());
  folder_.reset(::open(dir_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder_) fail_errno("mount at {}", dir_.string());
  check_place();
  if (!fs::is_empty(path_of(folder_))) fail<UsageError>("mount at {}: the folder is not empty", dir_.string());
}

void MountPoint::check_place() const {
  if (const auto now = fs::read_symlink(path_of(folder_)); now != dir_)
    fail<UsageError>("mount at {}: the folder has been moved meanwhile, to {}", dir_.string(), now.string());
}

void MountPoint::bind(const fs::path& from) const {
  check_place();
  const UniqueFd tree(::open_tree(AT_FDCWD, from.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!tree || ::move_mount(tree.get(), "", folder_.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    fail_errno("bind {} to {}", from.string(), dir_.string());
  try {
    check_place();
  } catch (...) {
    ::umount2(path_of(tree).c_str(), MNT_DETACH);
    throw;
  }
}

}  // namespace varve::fuse
