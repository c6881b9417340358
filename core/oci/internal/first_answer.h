#pragma once
// Whether a host has ever answered: one that never did is not waited for as long as one that has something else to do.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace varve::oci::internal {

// Of one host, shared by all that ask it. Safe to use from any thread.
class FirstAnswer {
 public:
  bool came() const { return came_; }
  void note_came() { came_ = true; }

  // Somebody waited in vain, and asks elsewhere.
  void note_left() {
    left_at_ = std::chrono::steady_clock::now().time_since_epoch().count();
    ++times_left_;
  }
  // Who was queued behind one that left need not wait as long once more: true within a second, and counted as leaving.
  bool leave_with_others() {
    const auto at = left_at_.load();
    const std::chrono::steady_clock::time_point left{std::chrono::steady_clock::duration(at)};
    if (at == 0 || std::chrono::steady_clock::now() - left > std::chrono::seconds(1)) return false;
    ++times_left_;
    return true;
  }
  std::uint64_t times_left() const { return times_left_; }

 private:
  std::atomic<bool> came_ = false;
  std::atomic<std::chrono::steady_clock::rep> left_at_ = 0;
  std::atomic<std::uint64_t> times_left_ = 0;
};

// How one that asks a host waits for its first answer.
struct FirstAnswerWait {
  std::shared_ptr<FirstAnswer> host = {};  // told of answers; null = nobody wants to know
  // From connecting on; absent = as long as for any answer. Needs `host`.
  std::optional<std::chrono::milliseconds> limit = {};

  bool is_short() const { return limit && !host->came(); }
};

}  // namespace varve::oci::internal
