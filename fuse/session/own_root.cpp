#include "fuse/session/own_root.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <thread>

#include <fmt/format.h>

#include "core/base/files/file.h"

namespace varve::fuse {

// The kernel writes paths of other namespaces in full; it would write "/" for our own root if it were asked by somebody
// who has the same one, so a thread that has another asks.
std::string path_of_own_root() {
  std::string path;
  const auto root = open_file("/", O_PATH | O_DIRECTORY);
  pid_t thread = 0;
  std::thread([&] {
    thread = ::gettid();
    if (::unshare(CLONE_FS) != 0 || ::chroot("/proc") != 0) return;
    std::array<char, PATH_MAX> target;
    const auto length = ::readlink(fmt::format("/self/fd/{}", root.get()).c_str(), target.data(), target.size());
    if (length > 1 && std::size_t(length) < target.size() && target[0] == '/')
      path.assign(target.data(), std::size_t(length));
  }).join();
  // It runs no more, but the kernel may still count it, and lets no process of two threads enter a user namespace.
  while (::tgkill(::getpid(), thread, 0) == 0) ::sched_yield();
  return path;
}

}  // namespace varve::fuse
