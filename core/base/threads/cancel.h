#pragma once
#include <atomic>

#include "core/base/errors.h"

namespace varve {

// Tells long work to stop. Set from a signal handler or another thread; looked at between steps.
class CancelFlag {
 public:
  CancelFlag() = default;
  // Of a part of some work: cancelled with the whole, too, which outlives it.
  explicit CancelFlag(const CancelFlag* whole) : whole_(whole) {}
  void cancel() noexcept { flag_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept {
    return flag_.load(std::memory_order_relaxed) || (whole_ != nullptr && whole_->cancelled());
  }
  void throw_if_cancelled() const {
    if (cancelled()) throw Cancelled("cancelled");
  }

 private:
  std::atomic<bool> flag_ = false;
  const CancelFlag* whole_ = nullptr;
};

}  // namespace varve
