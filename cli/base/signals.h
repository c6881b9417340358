#pragma once
#include <signal.h>

#include "core/base/threads/cancel.h"

namespace varve::cli {

// The exit status of a command that goes on until Ctrl-C, as shells count SIGINT.
inline constexpr int kInterrupted = 130;

// While it lives, the first SIGINT or SIGTERM sets the flag; the second kills the process as usual. One at a time per
// process; `flag` must outlive it.
class CancelOnSignals {
 public:
  explicit CancelOnSignals(CancelFlag& flag);
  ~CancelOnSignals();
  CancelOnSignals(const CancelOnSignals&) = delete;
  CancelOnSignals& operator=(const CancelOnSignals&) = delete;

  // The signal that has set the flag; 0 if none has.
  int received() const;

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};

}  // namespace varve::cli
