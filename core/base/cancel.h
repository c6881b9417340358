#pragma once
#include <atomic>

#include "core/base/errors.h"

namespace varve {

// Tells long work to stop. Set from a signal handler or another thread; looked at between steps.
class CancelFlag {
 public:
  void cancel() noexcept { flag_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return flag_.load(std::memory_order_relaxed); }
  void throw_if_cancelled() const {
    if (cancelled()) throw Cancelled("cancelled");
  }

 private:
  std::atomic<bool> flag_ = false;
};

}  // namespace varve
