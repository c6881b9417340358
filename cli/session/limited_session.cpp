#include "cli/session/limited_session.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/safe_text.h"
#include "core/base/unique_fd.h"
#include "fuse/session/runtime.h"

namespace varve::cli {
namespace {

constexpr int kTimeIsUp = 124;                     // as timeout(1) says it
constexpr std::chrono::milliseconds kGrace{3000};  // between being asked to end and being ended
constexpr std::chrono::milliseconds kLook{200};    // how often a cancelled recording notices

// A process that runs a session, which ends with it.
class SessionProcess {
 public:
  // Call from a process with one thread.
  explicit SessionProcess(const fuse::SessionRequest& request) : pid_(::fork()) {
    if (pid_ < 0) fail_errno("make a process for a session");
    if (pid_ == 0) ::_exit(run(request));
    ended_.reset(int(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!ended_) fail_errno("watch a session");
  }
  ~SessionProcess() {
    if (pid_ > 0 && !done_) end(SIGKILL, std::chrono::milliseconds(-1), nullptr);
  }
  SessionProcess(const SessionProcess&) = delete;
  SessionProcess& operator=(const SessionProcess&) = delete;

  // Its exit status; absent if it has not ended by then. Less than 0: waits for ever. Throws Cancelled.
  std::optional<int> wait(std::chrono::milliseconds limit, const CancelFlag* cancel) {
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
  std::optional<int> end(int signal, std::chrono::milliseconds limit, const CancelFlag* cancel) {
    ::kill(pid_, signal);
    return wait(limit, cancel);
  }

 private:
  static int run(const fuse::SessionRequest& request) noexcept {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      const auto result = fuse::run_session(
          request, [](const std::string&) {}, [](const std::string& text) { log::info("{}", text); });
      if (!result.failure.empty()) log::error("{}", message_text(result.failure));
      return result.exit_status;
    } catch (const std::exception& error) {
      log::error("{}", message_text(error.what()));
      return fuse::kOwnFailure;
    }
  }

  pid_t pid_;
  UniqueFd ended_;
  bool done_ = false;
};

}  // namespace

int run_limited_session(const fuse::SessionRequest& request, std::chrono::seconds limit, const CancelFlag& cancel) {
  SessionProcess session(request);
  if (const auto status = session.wait(limit, &cancel)) return *status;
  if (!session.end(SIGTERM, kGrace, &cancel)) session.end(SIGKILL, std::chrono::milliseconds(-1), &cancel);
  return kTimeIsUp;
}

}  // namespace varve::cli
