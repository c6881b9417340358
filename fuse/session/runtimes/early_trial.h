#pragma once
// Which runtime works here (runtime.h) the first session since the machine's start has to find out, and a trial takes
// as long as a session's own start. While its image is mounted there is time for that.
#include <filesystem>
#include <memory>
#include <string>

#include "core/base/threads/cancel.h"
#include "fuse/session/forked_process.h"

namespace varve::fuse {

// Ends the process with itself, whether that has an answer or not.
class EarlyTrial {
 public:
  // Begins the trials in a process of its own, unless the answer is known or `runtime` needs none. Call from a process
  // with one thread. What goes wrong the session finds out itself.
  EarlyTrial(const std::filesystem::path& root, const std::string& runtime) noexcept;
  // Returns when it has ended; what it found is kept for sessions. Throws Cancelled.
  void wait(const CancelFlag& cancel);

 private:
  std::unique_ptr<ForkedProcess> process_;  // null: there is nothing to try
};

}  // namespace varve::fuse
