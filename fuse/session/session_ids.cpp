#include "fuse/session/session_ids.h"

#include <fcntl.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/session/session_mounts.h"

namespace varve::fuse {
namespace {

void attach(const UniqueFd& mount, const std::filesystem::path& path) {
  attach_mount(mount, open_file(path, O_PATH | O_NOFOLLOW).get(), path.string());
}

void map_owners_or_throw(const UniqueFd& mount, bool recursive, const std::filesystem::path& path,
                         const UniqueFd& user_namespace) {
  if (const auto why = map_owners(mount, recursive, path, user_namespace))
    fail<Unsupported>("{}; or --userns host", *why);
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
  map_owners_or_throw(copy, false, path, user_namespace);
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
    map_owners_or_throw(copy, !mount.file, mount.source, user_namespace);
    attach(copy, target);
    mount.source = target.string();
  }
}

}  // namespace varve::fuse
