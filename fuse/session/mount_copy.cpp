#include "fuse/session/mount_copy.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/errors.h"

namespace varve::fuse {

UniqueFd copy_mount(int at, const std::string& path, bool recursive) {
  const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | unsigned(recursive ? AT_RECURSIVE : 0) |
                         unsigned(path.empty() ? AT_EMPTY_PATH : 0);
  UniqueFd copy(int(::syscall(SYS_open_tree, at, path.c_str(), flags)));
  if (!copy) fail_errno("copy the mount {}", path);
  return copy;
}

void attach_mount(const UniqueFd& mount, int place, const std::string& name) {
  constexpr unsigned kFlags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
  if (::syscall(SYS_move_mount, mount.get(), "", place, "", kFlags) != 0) fail_errno("mount {}", name);
}

std::optional<std::string> map_owners(const UniqueFd& mount, bool recursive, const std::filesystem::path& path,
                                      const UniqueFd& user_namespace) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = std::uint64_t(user_namespace.get());
  const unsigned how = AT_EMPTY_PATH | unsigned(recursive ? AT_RECURSIVE : 0);
  if (::syscall(SYS_mount_setattr, mount.get(), "", how, &attributes, sizeof attributes) == 0) return std::nullopt;
  const auto reason = std::system_category().message(errno);
  struct statfs status {};
  const bool is_fuse = ::statfs(path.c_str(), &status) == 0 && status.f_type == FUSE_SUPER_MAGIC;
  return fmt::format("{} cannot be shown with the ids of a user namespace: {} ({})", path.string(), reason,
                     is_fuse ? "it is a FUSE mount, which cannot: an image is mounted with --mode kernel"
                             : "its file system and this kernel must know ID-mapped mounts: EROFS, ext4, XFS, btrfs "
                               "and tmpfs do, of Linux 5.19, 6.3 for tmpfs");
}

}  // namespace varve::fuse
