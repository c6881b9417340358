#include "fuse/session/runtimes/early_trial.h"

#include "core/base/log.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::fuse {

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
    process_ = std::make_unique<ForkedProcess>([&] {
      be_unheard();
      return run_session_quietly(request);
    });
  } catch (const std::exception& error) {
    log::debug("no runtime is tried: {}", error.what());
  }
}

void EarlyTrial::wait(const CancelFlag& cancel) {
  if (process_) process_->wait(std::chrono::milliseconds(-1), &cancel);
  process_.reset();
}

}  // namespace varve::fuse
