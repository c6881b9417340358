#pragma once
// Which runtime works here (runtime.h) the first session since the machine's start has to find out, and a trial takes
// as long as a session's own start. While its image is mounted there is time for that.
#include <sys/types.h>

#include <filesystem>
#include <string>

#include "core/base/cancel.h"

namespace varve::fuse {

class EarlyTrial {
 public:
  // Begins the trials in a process of its own, unless the answer is known or `runtime` needs none. Call from a process
  // with one thread. What goes wrong the session finds out itself.
  EarlyTrial(const std::filesystem::path& root, const std::string& runtime) noexcept;
  // Ends it, whether it has an answer or not.
  ~EarlyTrial();
  EarlyTrial(const EarlyTrial&) = delete;
  EarlyTrial& operator=(const EarlyTrial&) = delete;

  // Returns when it has ended; what it found is kept for sessions. Throws Cancelled.
  void wait(const CancelFlag& cancel);

 private:
  pid_t process_ = 0;
};

}  // namespace varve::fuse
