#pragma once
#include <atomic>
#include <mutex>

namespace varve {

// What is done once, by whoever needs it first, and tried again where it failed. (std::call_once would do, but that an
// exception leaves it is not safe under ThreadSanitizer.) Safe to use from any thread.
class DoneOnce {
 public:
  // What the action did is seen by who sees this.
  bool is_done() const { return done_.load(std::memory_order_acquire); }
  // Calls it if it was not done; others wait. What it throws is thrown to its caller alone.
  template <typename Action>
  void run(const Action& action) {
    if (is_done()) return;
    const std::lock_guard guard(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    action();
    done_.store(true, std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> done_ = false;
};

}  // namespace varve
