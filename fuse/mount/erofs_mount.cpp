#include "fuse/mount/erofs_mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "fuse/mount/mount_child.h"
#include "fuse/mount/mount_table.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::size_t kMaxParameterBytes = 255;  // of one fsconfig string (fs/fsopen.c)
const fs::path kBdiDir = "/sys/class/bdi";
constexpr int kMostTries = 8;  // of a mount whose read-ahead is to be set: a second in all, or two

// What the kernel has to say beyond errno: lines such as "e erofs: ..." (fsopen(2)).
std::string kernel_message(int context) {
  std::string message;
  std::array<char, 512> line;
  for (ssize_t n = 0; (n = ::read(context, line.data(), line.size())) > 0;) {
    if (!message.empty()) message += "; ";
    message.append(line.data(), static_cast<std::size_t>(n));
  }
  return message;
}

[[noreturn]] void fail_with_kernel_message(int context, const fs::path& tree_file) {
  const int error = errno;
  const auto message = kernel_message(context);
  errno = error;
  fail_errno("mount {} as EROFS{}{}", tree_file.string(), message.empty() ? "" : ": ", message);
}

// A path that fits into one parameter: a long one is reached through an open descriptor.
class ParameterPath {
 public:
  explicit ParameterPath(const fs::path& path) : text_(path.string()) {
    if (text_.size() <= kMaxParameterBytes) return;
    fd_ = open_file(path, O_RDONLY);
    text_ = fmt::format("/proc/self/fd/{}", fd_.get());
  }
  const char* c_str() const { return text_.c_str(); }
  int fd() const { return fd_.get(); }  // -1: not needed

 private:
  std::string text_;
  UniqueFd fd_;
};

// Opens the devices, files that this very process serves. 0 or an errno.
int create(int context, std::span<const int> needed) {
  return MountChild(
             needed,
             [context] { return ::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0 ? 0 : errno; })
      .wait();
}

UniqueFd make_mount(const ErofsMountRequest& request) {
  const UniqueFd context(::fsopen("erofs", FSOPEN_CLOEXEC));
  if (!context) fail_errno("open the file system type erofs");
  if (::fsconfig(context.get(), FSCONFIG_SET_FLAG, "ro", nullptr, 0) != 0)
    fail_with_kernel_message(context.get(), request.tree_file);
  const ParameterPath source(request.tree_file);  // opened by the kernel only at the end
  if (::fsconfig(context.get(), FSCONFIG_SET_STRING, "source", source.c_str(), 0) != 0)
    fail_with_kernel_message(context.get(), request.tree_file);
  std::vector<ParameterPath> devices;
  devices.reserve(request.devices.size());
  for (const auto& device : request.devices) {
    devices.emplace_back(device);
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, "device", devices.back().c_str(), 0) != 0)
      fail_with_kernel_message(context.get(), request.tree_file);
  }
  std::vector<int> needed{context.get(), source.fd()};
  for (const auto& device : devices) needed.push_back(device.fd());
  errno = create(context.get(), needed);
  if (errno != 0) fail_with_kernel_message(context.get(), request.tree_file);
  UniqueFd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!mount) fail_with_kernel_message(context.get(), request.tree_file);
  return mount;
}

std::set<std::string> erofs_bdis() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(kBdiDir, error)) {
    auto name = entry.path().filename().string();
    if (name.starts_with("erofs-")) names.insert(std::move(name));
  }
  return names;
}

// Those of mounts that were made since. The number in a name is a count of the kernel's and says nothing of its mount.
std::vector<std::string> erofs_bdis_since(const std::set<std::string>& before) {
  std::vector<std::string> fresh;
  std::ranges::set_difference(erofs_bdis(), before, std::back_inserter(fresh));
  return fresh;
}

void set_read_ahead(const std::vector<std::string>& fresh, unsigned read_ahead_kb, const fs::path& dir) {
  if (fresh.size() != 1)
    return log::warn(
        "{}: read-ahead stays at the kernel's default: {} new EROFS mounts, so which is this one is not known",
        dir.string(), fresh.size());
  std::ofstream file(kBdiDir / fresh.front() / "read_ahead_kb");
  file << read_ahead_kb << std::flush;
  if (!file) log::warn("cannot set the read-ahead of {}", fresh.front());
}

// Which bdi is that of the mount shows where no other EROFS was mounted beside it, on the whole machine: where one was
// (a daemon with another root, another program), the mount is made anew.
UniqueFd make_mount_with_read_ahead(const ErofsMountRequest& request) {
  for (int tries = 1;; ++tries) {
    const auto before = erofs_bdis();
    auto mount = make_mount(request);
    const auto fresh = erofs_bdis_since(before);
    if (fresh.size() <= 1 || tries == kMostTries) {
      set_read_ahead(fresh, request.read_ahead_kb, request.dir);
      return mount;
    }
    mount.reset();  // nobody has seen it
    // Whoever met us makes another as well: not after the same time.
    std::this_thread::sleep_for(random_wait(1ms, 4ms * (1 << tries)));
  }
}

}  // namespace

bool is_lack_of_kernel(int error_number) {
  // ENOTBLK: EROFS wants a block device. EOPNOTSUPP: the tree uses what this kernel does not know. EINVAL: an unknown
  // parameter.
  switch (error_number) {
    case ENOTBLK:
    case ENODEV:
    case ENOSYS:
    case EPERM:
    case EACCES:
    case EOPNOTSUPP:
    case EINVAL:
      return true;
    default:
      return false;
  }
}

std::string why_no_erofs(const std::system_error& error, const std::string& release, const std::string& file_system,
                         const fs::path& tree_file) {
  int major = 0, minor = 0;
  const bool known = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
  if (known && (major < 6 || (major == 6 && minor < 12)))
    return fmt::format("kernel mode needs Linux 6.12 with EROFS, and this is {}", release);
  switch (error.code().value()) {
    case ENODEV:
      return "kernel mode needs EROFS, which this kernel does not have (module erofs)";
    case ENOTBLK:  // without CONFIG_EROFS_FS_BACKED_BY_FILE, too
      return fmt::format(
          "kernel mode is not possible with files on {}, where {} lies (nor with a kernel whose EROFS takes block devices "
          "only); give --root on a disk, as ext4 or xfs",
          file_system, tree_file.parent_path().string());
    default:
      return fmt::format("kernel mode does not work here ({})", error.what());
  }
}

std::string why_no_erofs(const std::system_error& error, const fs::path& tree_file) {
  utsname system{};
  ::uname(&system);
  // The file system of the longest mount point that the path begins with.
  std::string type = "this file system";
  std::size_t longest = 0;
  std::error_code ignored;
  const auto path = fs::weakly_canonical(tree_file, ignored).native();
  for (const auto& entry : read_mount_table()) {
    const auto& dir = entry.dir.native();
    const bool holds = path.starts_with(dir) && (dir == "/" || path.size() == dir.size() || path[dir.size()] == '/');
    if (!holds || dir.size() < longest) continue;
    longest = dir.size();
    type = entry.type;
  }
  return why_no_erofs(error, system.release, type, tree_file);
}

void mount_erofs(const ErofsMountRequest& request) {
  static std::mutex one_at_a_time;  // of the process, like the listing that it guards
  const std::lock_guard guard(one_at_a_time);
  const auto mount = request.read_ahead_kb == 0 ? make_mount(request) : make_mount_with_read_ahead(request);
  if (::move_mount(mount.get(), "", AT_FDCWD, request.dir.c_str(), MOVE_MOUNT_F_EMPTY_PATH) != 0)
    fail_errno("mount EROFS at {}", request.dir.string());
}

}  // namespace varve::fuse
