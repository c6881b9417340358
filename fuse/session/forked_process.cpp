#include "fuse/session/forked_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/process/inherited.h"
#include "core/base/process/running_process.h"
#include "core/base/text/safe_text.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::fuse {
namespace {

constexpr std::chrono::milliseconds kCancelLook{200};  // how often it is seen that somebody cancels

int run(const std::function<int()>& work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    log::error("{}", message_text(error.what()));
    return kOwnFailure;
  }
}

}  // namespace

ForkedProcess::ForkedProcess(const std::function<int()>& work) {
  const auto starter = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) fail_errno("make a further process");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(::getppid() == starter ? run(work) : kOwnFailure);
  }
  ended_.reset(int(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!ended_) fail_errno("watch a process");
}

ForkedProcess::~ForkedProcess() {
  if (!done_) end(SIGKILL, std::chrono::milliseconds(-1), nullptr);
}

void ForkedProcess::abandon() noexcept {
  if (!done_) send_signal(ended_, SIGKILL);
  done_ = true;
}

std::optional<int> ForkedProcess::wait(std::chrono::milliseconds limit, const CancelFlag* cancel) {
  const auto until = std::chrono::steady_clock::now() + limit;
  pollfd ended{.fd = ended_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    if (cancel != nullptr) cancel->throw_if_cancelled();
    if (::poll(&ended, 1, int(kCancelLook.count())) > 0) break;
    if (limit.count() >= 0 && std::chrono::steady_clock::now() >= until) return std::nullopt;
  }
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  done_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::optional<int> ForkedProcess::end(int signal, std::chrono::milliseconds limit, const CancelFlag* cancel) {
  send_signal(ended_, signal);
  return wait(limit, cancel);
}

void be_unheard() {
  ::setpgid(0, 0);
  if (!lead_nowhere(kStandardStreams)) fail_errno("leave the streams of the session");
}

bool collect_children(pid_t awaited, int& wait_status) noexcept {
  bool found = false;
  int status = 0;
  for (pid_t gone = ::waitpid(-1, &status, WNOHANG); gone > 0; gone = ::waitpid(-1, &status, WNOHANG)) {
    if (gone != awaited) continue;
    found = true;
    wait_status = status;
  }
  return found;
}

int run_session_quietly(const SessionRequest& request) {
  const auto result = run_session(
      request, [](const std::string&) {}, [](const std::string& text) { log::info("{}", text); });
  if (!result.failure.empty()) log::error("{}", message_text(result.failure));
  return result.exit_status;
}

}  // namespace varve::fuse
