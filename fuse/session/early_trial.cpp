#include "fuse/session/early_trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/unique_fd.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/runtime.h"
#include "fuse/session/session.h"
#include "fuse/session/session_store.h"

namespace varve::fuse {
namespace {

constexpr int kLookMs = 50;  // whether somebody cancels

// A session of a tree that is not there: it tries its runtime, and ends when it comes to the tree.
void try_runtimes(const std::filesystem::path& root) {
  SessionRequest request;
  request.root = root;
  request.lower = "/nonexistent";
  request.image = "trial of the runtime";
  request.options.command = {"/"};
  request.remove_at_exit = true;
  run_session(
      request, [](const auto&) {}, [](const auto&) {});
}

[[noreturn]] void become_trial(const std::filesystem::path& root, pid_t starter) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != starter) ::_exit(0);
  ::setpgid(0, 0);  // keys are for the session
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::dup2(nothing, stream) < 0) ::_exit(1);
  try {
    try_runtimes(root);
  } catch (const std::exception&) {  // nobody listens
  }
  ::_exit(0);
}

}  // namespace

EarlyTrial::EarlyTrial(const std::filesystem::path& root, const std::string& runtime) noexcept {
  try {
    if (!needs_trial({.wanted = runtime, .ids = UserIds::of_this_process(), .memory = trial_memory(root), .trial = {}}))
      return;
  } catch (const std::exception& error) {
    log::debug("no runtime is tried: {}", error.what());
    return;
  }
  const auto starter = ::getpid();
  process_ = ::fork();
  if (process_ == 0) become_trial(root, starter);
}

EarlyTrial::~EarlyTrial() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);  // its session ends with it
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void EarlyTrial::wait(const CancelFlag& cancel) {
  if (process_ <= 0) return;
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  while (::waitpid(process_, nullptr, WNOHANG) == 0) {
    cancel.throw_if_cancelled();
    pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, kLookMs);
  }
  process_ = 0;
}

}  // namespace varve::fuse
