#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace varve {

// Hands values from one thread to another; who is too fast waits.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  // False if nobody will take it any more: abort() was called.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [this] { return values_.size() < capacity_ || aborted_; });
    if (aborted_) return false;
    values_.push_back(std::move(value));
    has_value_.notify_one();
    return true;
  }

  // Absent after the last value, or at once after abort().
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    has_value_.wait(lock, [this] { return !values_.empty() || closed_ || aborted_; });
    if (aborted_ || values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    has_room_.notify_one();
    return value;
  }

  // No more values will come; those that are there are still taken.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_value_.notify_all();
  }

  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    values_.clear();
    has_value_.notify_all();
    has_room_.notify_all();
  }

 private:
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable has_value_;
  std::condition_variable has_room_;
  std::deque<T> values_;
  bool closed_ = false;
  bool aborted_ = false;
};

}  // namespace varve
