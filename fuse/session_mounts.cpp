#include "fuse/session_mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "fuse/runtime.h"
#include "fuse/user_namespace.h"

namespace varve::fuse {
namespace {

void mount_or_throw(const char* source, const std::string& target, const char* type, unsigned long flags, const std::string& data) {
  if (::mount(source, target.c_str(), type, flags, data.empty() ? nullptr : data.c_str()) != 0)
    fail_errno("mount {} ({}) on {}", type == nullptr ? "bind" : type, source == nullptr ? "" : source, target);
}

struct MountFlags {
  unsigned long flags = 0;
  std::string data;
  bool recursive = false;
};

// As mount(8) reads options: known words are flags, all others go to the file system.
MountFlags parse_options(const std::vector<std::string>& options) {
  static constexpr std::pair<std::string_view, unsigned long> kFlags[] = {
      {"ro", MS_RDONLY}, {"nosuid", MS_NOSUID}, {"nodev", MS_NODEV}, {"noexec", MS_NOEXEC}, {"strictatime", MS_STRICTATIME}, {"relatime", MS_RELATIME}};
  MountFlags parsed;
  for (const auto& option : options) {
    const auto known = std::find_if(std::begin(kFlags), std::end(kFlags), [&](const auto& one) { return one.first == option; });
    if (known != std::end(kFlags)) {
      parsed.flags |= known->second;
    } else if (option == "rbind") {
      parsed.recursive = true;
    } else if (option != "bind" && option != "rw" && option != "rprivate" && option != "rslave") {
      parsed.data += (parsed.data.empty() ? "" : ",") + option;
    }
  }
  return parsed;
}

// On the mount and, if asked, on all below it: MS_REMOUNT would reach only the first.
void set_attributes(const std::string& target, unsigned long flags, bool recursive) {
  mount_attr attributes{};
  if ((flags & MS_RDONLY) != 0) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  if ((flags & MS_NOSUID) != 0) attributes.attr_set |= MOUNT_ATTR_NOSUID;
  if ((flags & MS_NODEV) != 0) attributes.attr_set |= MOUNT_ATTR_NODEV;
  if ((flags & MS_NOEXEC) != 0) attributes.attr_set |= MOUNT_ATTR_NOEXEC;
  if (attributes.attr_set == 0) return;
  if (::syscall(SYS_mount_setattr, AT_FDCWD, target.c_str(), recursive ? AT_RECURSIVE : 0, &attributes, sizeof attributes) != 0)
    fail_errno("change the mount {}", target);
}

// Not called bind: with temporary strings std::bind would be taken, and nothing be mounted.
void bind_path(const std::string& source, const std::string& target, const MountFlags& flags) {
  mount_or_throw(source.c_str(), target, nullptr, MS_BIND | (flags.recursive ? MS_REC : 0), "");
  mount_or_throw(nullptr, target, nullptr, MS_PRIVATE | MS_REC, "");
  set_attributes(target, flags.flags, flags.recursive);
}

void make_target(const std::string& target, bool file) {
  if (file) {
    const UniqueFd made(::open(target.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
    return;  // if it could not be made, the mount says so
  }
  ::mkdir(target.c_str(), 0755);
}

// The devices that every container has (runtime-spec config-linux.md, "Default Devices"), bound, as a user namespace cannot make them.
void fill_dev(const std::string& root) {
  for (const char* name : {"null", "zero", "full", "random", "urandom", "tty"}) {
    const auto target = root + "/dev/" + name;
    make_target(target, true);
    bind_path(std::string("/dev/") + name, target, {});
  }
  static constexpr std::pair<const char*, const char*> kLinks[] = {
      {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"}};
  for (const auto& [to, name] : kLinks)
    if (::symlink(to, (root + "/dev/" + name).c_str()) != 0 && errno != EEXIST) fail_errno("make the symlink /dev/{}", name);
}

// Programs look for the name of their terminal here, as its own device is of another /dev/pts.
void add_console(const std::string& root) {
  // Not what /proc/self/fd says: the terminal was opened in another mount namespace, in a chroot by a name that leads nowhere here.
  std::array<char, PATH_MAX> name{};
  if (::ttyname_r(STDIN_FILENO, name.data(), name.size()) != 0) return;
  const std::string terminal = name.data();
  make_target(root + "/dev/console", true);
  bind_path(terminal, root + "/dev/console", {});
}

void mount_one(const std::string& root, const SpecMount& mount) {
  const auto target = root + mount.destination;
  const auto flags = parse_options(mount.options);
  // Beneath the session's own /dev, where nothing but what is mounted there can be.
  if (mount.device) std::filesystem::create_directories(std::filesystem::path(target).parent_path());
  if (mount.type == "cgroup") return bind_path("/sys/fs/cgroup", target, {.flags = flags.flags, .data = "", .recursive = true});
  make_target(target, mount.file);
  if (mount.type == "bind" || mount.type == "none") return bind_path(mount.source, target, flags);
  mount_or_throw(mount.source.c_str(), target, mount.type.c_str(), flags.flags, flags.data);
  if (mount.destination == "/dev") fill_dev(root);
}

void hide_paths(const std::string& root, const SessionSpec& spec) {
  for (const auto& path : spec.masked_paths) {
    struct stat status{};
    if (::stat((root + path).c_str(), &status) != 0) continue;
    if (S_ISDIR(status.st_mode)) {
      mount_or_throw("tmpfs", root + path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0");
    } else {
      bind_path("/dev/null", root + path, {});
    }
  }
  for (const auto& path : spec.readonly_paths)
    if (::access((root + path).c_str(), F_OK) == 0) bind_path(root + path, root + path, {.flags = MS_RDONLY, .data = "", .recursive = true});
}

std::string escaped(const std::string& path) {
  std::string text;
  for (const char c : path) {
    if (c == '\\' || c == ':' || c == ',') text += '\\';
    text += c;
  }
  return text;
}

std::string try_overlay(const std::string& target, const std::string& data) {
  if (::mount("overlay", target.c_str(), "overlay", 0, data.c_str()) == 0) return "";
  return std::system_category().message(errno);
}

std::string try_fuse_overlayfs(const std::string& target, const std::string& data) {
  const auto program = find_program("fuse-overlayfs");
  if (program.empty()) return "not installed";
  const auto child = start_program({program, "-o", data, target}, {"PATH=/usr/bin:/bin"}, {}, [] {});
  const int status = shell_status(wait_for(child));
  return status == 0 ? "" : fmt::format("ended with status {}", status);
}

struct statx look_at(const UniqueFd& folder) {
  struct statx status {};
  if (::statx(folder.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &status) != 0)
    fail_errno("look at a root folder");
  return status;
}

bool is_same_place(const struct statx& one, const struct statx& other) {
  return one.stx_ino == other.stx_ino && one.stx_dev_major == other.stx_dev_major &&
         one.stx_dev_minor == other.stx_dev_minor && one.stx_mnt_id == other.stx_mnt_id;
}

// A new root can take the place of this process's root only if that is a mount point: binds the folder on itself.
UniqueFd make_mount_point(const UniqueFd& folder) {
  UniqueFd tree(int(
      ::syscall(SYS_open_tree, folder.get(), "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE)));
  if (!tree) fail_errno("bind the root of a chroot");
  if (::syscall(SYS_move_mount, tree.get(), "", folder.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) !=
      0)
    fail_errno("mount the root of a chroot on itself");
  return tree;
}

// Back to where a chroot(2) had put this process.
void enter_chroot(const UniqueFd& root) {
  const bool is_mount_point = (look_at(root).stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
  const auto mounted = is_mount_point ? UniqueFd() : make_mount_point(root);
  if (::fchdir((is_mount_point ? root : mounted).get()) != 0 || ::chroot(".") != 0)
    fail_errno("enter the root of the chroot");
}

}  // namespace

void keep_mounts_private() {
  // In a chroot "/" may be no mount point, and what it lies in may be shared with the machine: both can be mended from
  // the root of the mount namespace only, where setns(2) into one's own namespace leads.
  std::error_code none;
  const auto working_dir = std::filesystem::current_path(none);
  const auto root = open_file("/", O_PATH | O_DIRECTORY);
  const UniqueFd own(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  const bool at_the_top = own && ::setns(own.get(), CLONE_NEWNS) == 0;
  mount_or_throw(nullptr, "/", nullptr, MS_SLAVE | MS_REC, "");
  if (!at_the_top) return;
  if (!is_same_place(look_at(root), look_at(open_file("/", O_PATH | O_DIRECTORY)))) enter_chroot(root);
  std::filesystem::current_path(none ? "/" : working_dir, none);  // setns(2) leaves it
}

void mount_own_proc() { mount_or_throw("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, ""); }

std::string overlay_options(const std::string& lower, const std::string& upper, const std::string& work) {
  return fmt::format("lowerdir={},upperdir={},workdir={}", escaped(lower), escaped(upper), escaped(work));
}

void mount_now(const SpecMount& mount, const std::filesystem::path& root) { bind_path(mount.source, root.string() + mount.destination, parse_options(mount.options)); }

void mount_overlay(const std::filesystem::path& lower, const SessionFolder& folder, const OverlayOptions& options) {
  const auto target = folder.merged().string();
  const auto folders = overlay_options(lower, folder.upper(), folder.work());
  const std::string crash = options.keep_after_crash ? "" : ",volatile";
  std::string answers;
  if (!options.in_user_namespace) {
    const auto answer = try_overlay(target, folders + crash);
    if (answer.empty()) return;
    answers += fmt::format("overlayfs: {}; ", answer);
  }
  auto answer = try_overlay(target, folders + ",userxattr" + crash);
  if (answer.empty()) return;
  answers += fmt::format("overlayfs with user xattrs: {}; ", answer);
  answer = try_fuse_overlayfs(target, folders);
  if (answer.empty()) return log::info("overlayfs does not work here, fuse-overlayfs does ({})", answers);
  fail<Unsupported>("no writable layer over {} in {}: {}fuse-overlayfs: {} (the state folder must be on a local file system that is no overlay: --root)",
                    lower.string(), folder.dir.string(), answers, answer);
}

void enter_session_root(const SessionSpec& spec) {
  mount_or_throw(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, "");
  const auto root = spec.rootfs.string();
  bind_path(root, root, {.flags = 0, .data = "", .recursive = true});  // a new root must be a mount point in this namespace
  for (const auto& mount : spec.mounts) mount_one(root, mount);
  if (spec.terminal) add_console(root);
  hide_paths(root, spec);
  if (::chdir(root.c_str()) != 0) fail_errno("enter {}", root);
  // The old root lands beneath the new one and is let go from there (pivot_root(2), "pivot_root(".", ".")").
  if (::syscall(SYS_pivot_root, ".", ".") != 0) fail_errno("make {} the root", root);
  if (::umount2(".", MNT_DETACH) != 0) fail_errno("let go of the machine's root");
  if (::chdir("/") != 0) fail_errno("enter the session's root");
}

}  // namespace varve::fuse
