#pragma once
// A process of this program that ends with whoever started it.
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>

#include "core/base/files/unique_fd.h"
#include "core/base/threads/cancel.h"
#include "fuse/session/session.h"

namespace varve::fuse {

class ForkedProcess {
 public:
  // Its exit status is what `work` returns; 125 if that throws, which is logged. Call from a process with one thread.
  // Throws std::system_error.
  explicit ForkedProcess(const std::function<int()>& work);
  // Ends it, if it has not ended, and waits for that.
  ~ForkedProcess();
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  // Its exit status; absent if it has not ended by then. Less than 0: waits for ever. Throws Cancelled.
  std::optional<int> wait(std::chrono::milliseconds limit, const CancelFlag* cancel);
  std::optional<int> end(int signal, std::chrono::milliseconds limit, const CancelFlag* cancel);
  // Kills it and waits no more: a read of an image whose registry is away goes on to its end.
  void abandon() noexcept;

 private:
  pid_t pid_;
  UniqueFd ended_;  // stands for it in signals: somebody else may have collected it, and its number be another's
  bool done_ = false;
};

// For the work of a process: nobody hears it, and keys of the terminal are for others. Throws std::system_error.
void be_unheard();

// Collects children that have ended. True, with its status as wait(2) gives it, if the awaited one is among them.
bool collect_children(pid_t awaited, int& wait_status) noexcept;

// As the work of a process: a session whose caller wants nothing but the exit status.
int run_session_quietly(const SessionRequest& request);

}  // namespace varve::fuse
