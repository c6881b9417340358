#include "fuse/session/session_ids.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "fuse/session/session_mounts.h"

namespace varve::fuse {
namespace {

void attach(const UniqueFd& mount, const std::filesystem::path& path) {
  attach_mount(mount, open_file(path, O_PATH | O_NOFOLLOW).get(), path.string());
}

std::string what_would_help(const std::filesystem::path& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) == 0 && status.f_type == FUSE_SUPER_MAGIC)
    return "it is a FUSE mount, which cannot: an image is mounted with --mode kernel";
  return "its file system and this kernel must know ID-mapped mounts: EROFS, ext4, XFS, btrfs and tmpfs do, of Linux "
         "5.19, 6.3 for tmpfs";
}

void map_owners(const UniqueFd& mount, bool recursive, const std::filesystem::path& path,
                const UniqueFd& user_namespace) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = std::uint64_t(user_namespace.get());
  const unsigned how = AT_EMPTY_PATH | unsigned(recursive ? AT_RECURSIVE : 0);
  if (::syscall(SYS_mount_setattr, mount.get(), "", how, &attributes, sizeof attributes) == 0) return;
  const auto reason = std::system_category().message(errno);
  fail<Unsupported>("{} cannot be shown with the ids of a user namespace: {} ({}; or --userns host)", path.string(),
                    reason, what_would_help(path));
}

void check_others_may_enter(const std::filesystem::path& place) {
  for (auto folder = place.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) fail_errno("stat {}", folder.string());
    if ((status.st_mode & S_IXOTH) == 0)
      fail<Unsupported>(
          "a session in a user namespace cannot reach its files: {} may not be entered by others (chmod o+x, another "
          "--root, or --userns host)",
          folder.string());
    if (folder == folder.root_path()) break;
  }
}

void make_place(const std::filesystem::path& path, bool file) {
  if (!file) {
    if (::mkdir(path.c_str(), 0755) != 0) fail_errno("make the folder {}", path.string());
    return;
  }
  open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
}

}  // namespace

void show_with_ids(const std::filesystem::path& path, const UniqueFd& user_namespace) {
  const auto copy = copy_mount(AT_FDCWD, path, false);
  map_owners(copy, false, path, user_namespace);
  attach(copy, path);
}

MakeFilesOf::MakeFilesOf(const UserIds& ids) : old_bits_(::prctl(PR_GET_SECUREBITS)) {
  // Else the kernel would take the rights over files away with the id.
  if (old_bits_ < 0 || ::prctl(PR_SET_SECUREBITS, old_bits_ | SECBIT_NO_SETUID_FIXUP) != 0)
    fail_errno("keep the rights of root");
  ::setfsgid(ids.gids.outside(0));
  ::setfsuid(ids.uids.outside(0));
}

MakeFilesOf::~MakeFilesOf() {
  ::setfsuid(::geteuid());
  ::setfsgid(::getegid());
  ::prctl(PR_SET_SECUREBITS, old_bits_);
}

void stage_for_ids(SessionSpec& spec, const std::filesystem::path& place, const UniqueFd& user_namespace) {
  if (::mkdir(place.c_str(), 0755) != 0 && errno != EEXIST) fail_errno("make the folder {}", place.string());
  check_others_may_enter(place);
  if (::mount("tmpfs", place.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755") != 0)
    fail_errno("mount a tmpfs on {}", place.string());
  const auto root = place / "root";
  make_place(root, false);
  attach(copy_mount(AT_FDCWD, spec.rootfs, true), root);
  spec.rootfs = root;
  int number = 0;
  for (auto& mount : spec.mounts) {
    if (mount.type != "bind" || mount.device) continue;
    const auto target = place / std::to_string(++number);
    make_place(target, mount.file);
    const auto copy = copy_mount(AT_FDCWD, mount.source, !mount.file);
    map_owners(copy, !mount.file, mount.source, user_namespace);
    attach(copy, target);
    mount.source = target.string();
  }
}

}  // namespace varve::fuse
