#pragma once
#include <mutex>
#include <utility>

namespace varve {

// A value and its mutex in one type: the value cannot be reached without the lock.
template <typename T>
class Guarded {
 public:
  class Lock {
   public:
    T* operator->() { return value_; }
    T& operator*() { return *value_; }
    // For std::condition_variable::wait.
    std::unique_lock<std::mutex>& native() { return lock_; }

   private:
    friend Guarded;
    Lock(std::mutex& mutex, T& value) : lock_(mutex), value_(&value) {}
    std::unique_lock<std::mutex> lock_;
    T* value_;
  };

  Guarded() = default;
  template <typename... Args>
  explicit Guarded(std::in_place_t, Args&&... args) : value_(std::forward<Args>(args)...) {}

  Lock lock() { return Lock(mutex_, value_); }
  // Calls `operation` with the value while the lock is held. Never over I/O.
  template <typename Operation>
  decltype(auto) with(Operation&& operation) {
    const std::lock_guard guard(mutex_);
    return std::forward<Operation>(operation)(value_);
  }

 private:
  std::mutex mutex_;
  T value_{};
};

}  // namespace varve
