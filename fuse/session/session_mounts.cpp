#include "fuse/session/session_mounts.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

void mount_or_throw(const char* source, const std::string& target, const char* type, unsigned long flags,
                    const std::string& data) {
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
      {"ro", MS_RDONLY},     {"nosuid", MS_NOSUID},           {"nodev", MS_NODEV},
      {"noexec", MS_NOEXEC}, {"strictatime", MS_STRICTATIME}, {"relatime", MS_RELATIME}};
  MountFlags parsed;
  for (const auto& option : options) {
    const auto known =
        std::find_if(std::begin(kFlags), std::end(kFlags), [&](const auto& one) { return one.first == option; });
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
void set_attributes(const UniqueFd& mount, unsigned long flags, bool recursive, const std::string& name) {
  mount_attr attributes{};
  attributes.propagation = MS_PRIVATE;
  if ((flags & MS_RDONLY) != 0) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  if ((flags & MS_NOSUID) != 0) attributes.attr_set |= MOUNT_ATTR_NOSUID;
  if ((flags & MS_NODEV) != 0) attributes.attr_set |= MOUNT_ATTR_NODEV;
  if ((flags & MS_NOEXEC) != 0) attributes.attr_set |= MOUNT_ATTR_NOEXEC;
  const unsigned how = AT_EMPTY_PATH | unsigned(recursive ? AT_RECURSIVE : 0);
  if (::syscall(SYS_mount_setattr, mount.get(), "", how, &attributes, sizeof attributes) != 0)
    fail_errno("change the mount {}", name);
}

// Not called bind: with temporary strings std::bind would be taken, and nothing be mounted.
void bind_path(const std::string& source, int place, const MountFlags& flags) {
  const auto copy = copy_mount(AT_FDCWD, source, flags.recursive);
  set_attributes(copy, flags.flags, flags.recursive, source);
  attach_mount(copy, place, source);
}

// mount(2) takes names only, and this one is of the very place that is open.
std::string name_of(int place) { return "/proc/self/fd/" + std::to_string(place); }

bool is_of_the_kernel(std::string_view path) { return path.starts_with("/proc/") || path.starts_with("/sys/"); }

// The place of a mount, made where it is missing, by a walk that never leaves the root.
UniqueFd open_place(const Rootfs& root, const std::string& destination, bool file) {
  const auto place = root.ensure(destination, {.folder = !file, .mode = file ? 0644u : 0755u});
  if (place != destination && is_of_the_kernel(place))
    fail<CorruptData>("{} leads to {}, where nothing is to be mounted", destination, place);
  auto fd = root.open_plain(place, O_PATH | O_NOFOLLOW);
  if (!fd) fail<Error>("{} is gone as soon as it is made", place);
  return std::move(*fd);
}

// The devices that every container has (runtime-spec config-linux.md, "Default Devices"), bound, as a user namespace
// cannot make them.
void fill_dev(const Rootfs& root) {
  for (const std::string name : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"})
    bind_path(name, open_place(root, name, true).get(), {});
  static constexpr std::pair<const char*, const char*> kLinks[] = {{"/proc/self/fd", "fd"},
                                                                   {"/proc/self/fd/0", "stdin"},
                                                                   {"/proc/self/fd/1", "stdout"},
                                                                   {"/proc/self/fd/2", "stderr"},
                                                                   {"pts/ptmx", "ptmx"}};
  const auto dev = open_place(root, "/dev", false);
  for (const auto& [to, name] : kLinks)
    if (::symlinkat(to, dev.get(), name) != 0 && errno != EEXIST) fail_errno("make the symlink /dev/{}", name);
}

void mount_one(const Rootfs& root, const SpecMount& mount) {
  auto flags = parse_options(mount.options);
  const auto place = open_place(root, mount.destination, mount.file);
  if (mount.type == "cgroup")
    return bind_path("/sys/fs/cgroup", place.get(), {.flags = flags.flags, .data = "", .recursive = true});
  if (mount.type == "bind" || mount.type == "none") return bind_path(mount.source, place.get(), flags);
  // Here, with no device cgroup around, devices are what is bound: a node that somebody makes does nothing.
  if (mount.destination == "/dev") flags.flags |= MS_NODEV;
  mount_or_throw(mount.source.c_str(), name_of(place.get()), mount.type.c_str(), flags.flags, flags.data);
  if (mount.destination == "/dev") fill_dev(root);
}

void hide_paths(const Rootfs& root, const SessionSpec& spec) {
  for (const auto& path : spec.masked_paths) {
    const auto place = root.open_plain(path, O_PATH | O_NOFOLLOW);
    if (!place) continue;
    struct stat status {};
    if (::fstat(place->get(), &status) != 0) fail_errno("stat {}", path);
    if (S_ISDIR(status.st_mode)) {
      mount_or_throw("tmpfs", name_of(place->get()), "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0");
    } else {
      bind_path("/dev/null", place->get(), {});
    }
  }
  for (const auto& path : spec.readonly_paths) {
    const auto place = root.open_plain(path, O_PATH | O_NOFOLLOW);
    if (!place) continue;
    const auto copy = copy_mount(place->get(), "", true);
    set_attributes(copy, MS_RDONLY, true, path);
    attach_mount(copy, place->get(), path);
  }
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
  if (::mount("overlay", target.c_str(), "overlay", MS_NODEV, data.c_str()) == 0) return "";
  return std::system_category().message(errno);
}

std::string try_fuse_overlayfs(const std::string& target, const std::string& data) {
  const auto program = find_program("fuse-overlayfs");
  if (program.empty()) return "not installed";
  const auto child = start_program({program, "-o", data, target}, {"PATH=/usr/bin:/bin"}, {}, [] {});
  const int status = shell_status(wait_for(child));
  if (status != 0) return fmt::format("ended with status {}", status);
  set_attributes(open_file(target, O_PATH | O_DIRECTORY), MS_NODEV, false, target);
  return "";
}

// The folder that becomes the session's "/" shows its owner, mode and attributes, not those of the image's own.
void copy_root_attributes(const std::filesystem::path& lower, const std::filesystem::path& upper) {
  struct stat status {};
  if (::stat(lower.c_str(), &status) != 0) fail_errno("stat {}", lower.string());
  // Owners that this user cannot give away stay his own.
  if (::lchown(upper.c_str(), status.st_uid, status.st_gid) != 0 && errno != EPERM && errno != EINVAL)
    fail_errno("give {} its owner", upper.string());
  if (::chmod(upper.c_str(), status.st_mode & 07777) != 0) fail_errno("give {} its mode", upper.string());
  std::array<char, XATTR_LIST_MAX> names;
  const auto length = std::max<ssize_t>(0, ::listxattr(lower.c_str(), names.data(), names.size()));
  for (std::string_view left(names.data(), std::size_t(length)); !left.empty();
       left.remove_prefix(left.find('\0') + 1)) {
    const std::string name(left.substr(0, left.find('\0')));
    if (name.find("overlay.") != name.npos) continue;
    std::vector<char> value(XATTR_SIZE_MAX);
    const auto size = ::getxattr(lower.c_str(), name.c_str(), value.data(), value.size());
    if (size >= 0 && ::setxattr(upper.c_str(), name.c_str(), value.data(), std::size_t(size), 0) != 0)
      log::debug("{} stays without {}: {}", upper.string(), name, std::system_category().message(errno));
  }
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
  auto tree = copy_mount(folder.get(), "", true);
  attach_mount(tree, folder.get(), "the root of a chroot");
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

void mount_now(const SpecMount& mount, const Rootfs& root) {
  const auto place = root.open_plain(mount.destination, O_PATH | O_NOFOLLOW);
  if (!place) fail<NotFound>("{}: no such place", mount.destination);
  bind_path(mount.source, place->get(), parse_options(mount.options));
}

void mount_overlay(const std::filesystem::path& lower, const SessionFolder& folder, const OverlayOptions& options) {
  const auto target = folder.merged().string();
  if (options.is_new) copy_root_attributes(lower, folder.upper());
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
  fail<Unsupported>(
      "no writable layer over {} in {}: {}fuse-overlayfs: {} (the state folder must be on a local file system that "
      "is no overlay: --root)",
      lower.string(), folder.dir.string(), answers, answer);
}

void enter_session_root(const SessionSpec& spec) {
  mount_or_throw(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, "");
  const auto name = spec.rootfs.string();
  bind_path(name, open_file(name, O_PATH | O_DIRECTORY).get(),
            {.flags = 0, .data = "", .recursive = true});  // a new root must be a mount point
  const auto root = Rootfs::open(name);
  for (const auto& mount : spec.mounts) mount_one(root, mount);
  hide_paths(root, spec);
  if (spec.read_only) set_attributes(open_file(name, O_PATH | O_DIRECTORY), MS_RDONLY, false, name);
  if (::fchdir(root.fd()) != 0) fail_errno("enter {}", name);
  // The old root lands beneath the new one and is let go from there (pivot_root(2), "pivot_root(".", ".")").
  if (::syscall(SYS_pivot_root, ".", ".") != 0) fail_errno("make {} the root", name);
  if (::umount2(".", MNT_DETACH) != 0) fail_errno("let go of the machine's root");
  if (::chdir("/") != 0) fail_errno("enter the session's root");
}

void add_console(const std::string& terminal) {
  const auto root = Rootfs::open("/");
  bind_path(terminal, open_place(root, "/dev/console", true).get(), {});
}

}  // namespace varve::fuse
