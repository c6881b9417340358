#include "fuse/session/runtimes/early_trial.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::fuse {
namespace {

void be_unheard() {
  ::setpgid(0, 0);  // keys are for the session
  const auto nothing = open_file("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::dup2(nothing.get(), stream) < 0) fail_errno("leave the streams of the session");
}

}  // namespace

EarlyTrial::EarlyTrial(const std::filesystem::path& root, const std::string& runtime) noexcept {
  try {
    if (!needs_trial({.wanted = runtime, .ids = UserIds::of_this_process(), .memory = trial_memory(root), .trial = {}}))
      return;
    // A session of a tree that is not there: it tries its runtime, and ends when it comes to the tree.
    SessionRequest request;
    request.root = root;
    request.lower = "/nonexistent";
    request.image = "trial of the runtime";
    request.options.command = {"/"};
    request.remove_at_exit = true;
    process_ = std::make_unique<SessionProcess>(request, be_unheard);
  } catch (const std::exception& error) {
    log::debug("no runtime is tried: {}", error.what());
  }
}

void EarlyTrial::wait(const CancelFlag& cancel) {
  if (process_) process_->wait(std::chrono::milliseconds(-1), &cancel);
  process_.reset();
}

}  // namespace varve::fuse
