#pragma once
#include <mutex>
#include <vector>

#include "core/base/clock.h"

namespace varve::test {

// A clock that only moves when somebody sleeps or a test turns it; sleeping takes no time. Safe to use from any thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void sleep_for(std::chrono::milliseconds duration) override {
    const std::lock_guard lock(mutex_);
    now_ += duration;
    sleeps_.push_back(duration);
  }
  void advance(std::chrono::milliseconds duration) {
    const std::lock_guard lock(mutex_);
    now_ += duration;
  }
  std::vector<std::chrono::milliseconds> sleeps() const {
    const std::lock_guard lock(mutex_);
    return sleeps_;
  }

 private:
  mutable std::mutex mutex_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  std::vector<std::chrono::milliseconds> sleeps_;
};

}  // namespace varve::test
