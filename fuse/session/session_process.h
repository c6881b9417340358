#pragma once
// A process that runs a session, and ends with whoever started it.
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>

#include "core/base/cancel.h"
#include "core/base/unique_fd.h"
#include "fuse/session/session.h"

namespace varve::fuse {

class SessionProcess {
 public:
  // `first` is called in the process before anything else. Call from a process with one thread. Throws
  // std::system_error.
  explicit SessionProcess(
      const SessionRequest& request, const std::function<void()>& first = [] {});
  // Ends it, if it has not ended.
  ~SessionProcess();
  SessionProcess(const SessionProcess&) = delete;
  SessionProcess& operator=(const SessionProcess&) = delete;

  // Its exit status; absent if it has not ended by then. Less than 0: waits for ever. Throws Cancelled.
  std::optional<int> wait(std::chrono::milliseconds limit, const CancelFlag* cancel);
  std::optional<int> end(int signal, std::chrono::milliseconds limit, const CancelFlag* cancel);

 private:
  pid_t pid_;
  UniqueFd ended_;
  bool done_ = false;
};

}  // namespace varve::fuse
