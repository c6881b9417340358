#include "fuse/mount/mount_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/process/inherited.h"

namespace varve::fuse {
namespace {

using namespace std::chrono_literals;

// A read is let go when its process is killed, but by a daemon that serves no more: the one after it does.
constexpr auto kLongestEnd = 2s;

}  // namespace

MountChild::MountChild(std::span<const int> kept, const std::function<int()>& body) {
  const pid_t daemon = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail_errno("start a process that looks into a mount");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != daemon) ::_exit(EINTR);
  ::signal(SIGPIPE, SIG_DFL);
  close_all_but(kept);
  ::_exit(body());
}

int MountChild::wait() {
  int status = 0;
  const auto pid = std::exchange(pid_, 0);
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) fail_errno("wait for a process that looks into a mount");
  return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

bool MountChild::has_ended() {
  if (pid_ == 0) return true;
  const auto ended = ::waitpid(pid_, nullptr, WNOHANG);
  if (ended == pid_ || (ended < 0 && errno != EINTR)) pid_ = 0;
  return pid_ == 0;
}

MountChild::~MountChild() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  for (const auto until = std::chrono::steady_clock::now() + kLongestEnd; !has_ended();) {
    if (std::chrono::steady_clock::now() >= until) {
      log::warn("process {}, which looks into a mount, does not end", pid_);
      return;
    }
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace varve::fuse
