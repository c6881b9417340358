#include "fuse/session/access_watch.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <optional>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "fuse/session/own_root.h"

namespace varve::fuse {
namespace {

// A read opens one descriptor per event: few enough for the usual limit of 1,024.
constexpr std::size_t kEventsAtOnce = 128;
constexpr int kReadsAtOnce = 16;
constexpr std::uint64_t kInodeBits = (std::uint64_t(1) << 48) - 1;

// Where an open file lies in its own mount namespace. Absent for what has no path.
std::optional<std::string> path_of(int file) {
  std::array<char, PATH_MAX> target;
  const auto length = ::readlink(fmt::format("/proc/self/fd/{}", file).c_str(), target.data(), target.size());
  if (length <= 0 || std::size_t(length) >= target.size() || target[0] != '/') return std::nullopt;
  return std::string(target.data(), std::size_t(length));
}

void strip(std::string& path, const std::string& folder) {
  if (path.starts_with(folder + "/")) path.erase(0, folder.size());
}

}  // namespace

AccessWatch::AccessWatch(const std::filesystem::path& lower, std::filesystem::path merged)
    : merged_(std::move(merged)) {
  lower_ = open_file(lower, O_PATH | O_DIRECTORY);
  events_.reset(::fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK, O_RDONLY | O_CLOEXEC | O_LARGEFILE));
  if (events_.get() < 0) fail_errno("ask the kernel for file accesses (fanotify)");
  outside_ = path_of_own_root();
}

void AccessWatch::start() const {
  struct statfs status {};
  if (::statfs(merged_.c_str(), &status) != 0) fail_errno("look at {}", merged_.string());
  if (status.f_type != OVERLAYFS_SUPER_MAGIC) fail<Unsupported>("{} is no overlayfs of the kernel", merged_.string());
  if (::fanotify_mark(events_.get(), FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN | FAN_OPEN_EXEC, AT_FDCWD,
                      merged_.c_str()) != 0)
    fail_errno("watch the accesses in {} (fanotify)", merged_.string());
}

bool AccessWatch::take_some(const Tell& tell) noexcept {
  alignas(fanotify_event_metadata) std::array<char, kEventsAtOnce * sizeof(fanotify_event_metadata)> bytes;
  for (int round = 0; round < kReadsAtOnce; ++round) {
    auto length = ::read(events_.get(), bytes.data(), bytes.size());
    if (length <= 0) return length < 0 && errno == EINTR;
    const auto* event = reinterpret_cast<const fanotify_event_metadata*>(bytes.data());
    for (; FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length)) {
      if ((event->mask & FAN_Q_OVERFLOW) != 0) ++overflows_;
      if (event->fd < 0) continue;
      const UniqueFd file(event->fd);
      try {
        take_one(file.get(), (event->mask & FAN_OPEN_EXEC) != 0, tell);
      } catch (const std::exception& error) {
        log::debug("a file access is not recorded: {}", error.what());
      }
    }
  }
  return true;
}

void AccessWatch::take_one(int file, bool executed, const Tell& tell) {
  if (stopped_) return;
  // The kernel need not say it again: a program that opens one file all day costs nothing. It may forget that to free
  // memory, then seen_ holds.
  ::fanotify_mark(
      events_.get(), FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY | FAN_MARK_EVICTABLE,
      executed ? FAN_OPEN | FAN_OPEN_EXEC : FAN_OPEN, AT_FDCWD, fmt::format("/proc/self/fd/{}", file).c_str());
  auto path = path_of(file);
  if (!path) return;
  // A runtime that still prepares the session sees the tree where it is mounted, the command sees it as its root.
  strip(*path, outside_);
  strip(*path, merged_.string());
  path->erase(0, 1);
  if (seen_.size() >= kMaxToldAccesses) {
    ++overflows_;
    return stop();
  }
  if (!seen_.insert(std::hash<std::string>{}(*path) * 2 + (executed ? 1 : 0)).second) return;
  if (!is_of_the_image(*path, file)) return;
  if (!tell(*path, executed)) stop();
}

// What the session made is its own. An overlay keeps the number of a file of its lower tree, also when it is copied to
// be written to, and adds bits at the top to tell its layers apart. Where it cannot keep the number, size and time
// tell, unless the file was changed since it was opened.
bool AccessWatch::is_of_the_image(const std::string& path, int file) const {
  struct stat seen {};
  if (::fstat(file, &seen) != 0 || !S_ISREG(seen.st_mode)) return false;
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const UniqueFd below(int(::syscall(SYS_openat2, lower_.get(), path.c_str(), &how, sizeof how)));
  struct stat original {};
  if (below.get() < 0 || ::fstat(below.get(), &original) != 0 || !S_ISREG(original.st_mode)) return false;
  if (((seen.st_ino ^ original.st_ino) & kInodeBits) == 0) return true;
  return seen.st_size == original.st_size && seen.st_mtim.tv_sec == original.st_mtim.tv_sec &&
         seen.st_mtim.tv_nsec == original.st_mtim.tv_nsec;
}

void AccessWatch::stop() {
  stopped_ = true;
  ::fanotify_mark(events_.get(), FAN_MARK_FLUSH | FAN_MARK_FILESYSTEM, 0, AT_FDCWD, nullptr);
  ::fanotify_mark(events_.get(), FAN_MARK_FLUSH, 0, AT_FDCWD, nullptr);
}

}  // namespace varve::fuse
