#include "core/base/process/inherited.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace varve {
namespace {

constexpr int kFirst = STDERR_FILENO + 1;
constexpr int kNone = std::numeric_limits<int>::max();

// The least of `keep` that is at least `from`.
int next_kept(std::span<const int> keep, int from) {
  int next = kNone;
  for (const int fd : keep)
    if (fd >= from) next = std::min(next, fd);
  return next;
}

}  // namespace

void close_at_exec_but(std::span<const int> keep) noexcept {
  ::close_range(kFirst, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int fd : keep) ::fcntl(fd, F_SETFD, 0);
}

void close_all_but(std::span<const int> keep) noexcept {
  for (int from = kFirst;;) {
    const int kept = next_kept(keep, from);
    if (kept == kNone) {
      ::close_range(unsigned(from), ~0U, 0);
      return;
    }
    if (kept > from) ::close_range(unsigned(from), unsigned(kept) - 1, 0);
    from = kept + 1;
  }
}

bool lead_nowhere(std::span<const int> fds) noexcept {
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return false;
  bool all = true, is_one = false;
  for (const int fd : fds) {
    is_one = is_one || fd == null;  // which was closed
    all = all && (fd == null ? ::fcntl(fd, F_SETFD, 0) : ::dup2(null, fd)) >= 0;
  }
  if (!is_one) ::close(null);
  return all;
}

void make_room_for_open(int count) noexcept {
  const auto most = ::sysconf(_SC_OPEN_MAX);
  if (most > 0) count = int(std::min<long>(count, most));
  const int highest = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, count - 1);
  if (highest >= 0) ::close(highest);
}

}  // namespace varve
