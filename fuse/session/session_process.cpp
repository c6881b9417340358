#include "fuse/session/session_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/safe_text.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::fuse {
namespace {

constexpr std::chrono::milliseconds kLook{200};  // how often it is seen that somebody cancels

int run(const SessionRequest& request, const std::function<void()>& first) noexcept {
  try {
    first();
    const auto result = run_session(
        request, [](const std::string&) {}, [](const std::string& text) { log::info("{}", text); });
    if (!result.failure.empty()) log::error("{}", message_text(result.failure));
    return result.exit_status;
  } catch (const std::exception& error) {
    log::error("{}", message_text(error.what()));
    return kOwnFailure;
  }
}

}  // namespace

SessionProcess::SessionProcess(const SessionRequest& request, const std::function<void()>& first) {
  const auto starter = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail_errno("make a process for a session");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(::getppid() == starter ? run(request, first) : kOwnFailure);
  }
  ended_.reset(int(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!ended_) fail_errno("watch a session");
}

SessionProcess::~SessionProcess() {
  if (!done_) end(SIGKILL, std::chrono::milliseconds(-1), nullptr);
}

std::optional<int> SessionProcess::wait(std::chrono::milliseconds limit, const CancelFlag* cancel) {
  const auto until = std::chrono::steady_clock::now() + limit;
  pollfd ended{.fd = ended_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    if (cancel != nullptr) cancel->throw_if_cancelled();
    if (::poll(&ended, 1, int(kLook.count())) > 0) break;
    if (limit.count() >= 0 && std::chrono::steady_clock::now() >= until) return std::nullopt;
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  done_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::optional<int> SessionProcess::end(int signal, std::chrono::milliseconds limit, const CancelFlag* cancel) {
  ::kill(pid_, signal);
  return wait(limit, cancel);
}

}  // namespace varve::fuse
