#pragma once
// Work spread over threads whose results come out in the order in which the work went in.
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace varve::notebooks {

// `Worker` is made once per thread and called as worker(Item&&) -> Result. Results are given to `deliver` one at a
// time, in order, from any of the threads. put() waits while more than a window of results is outstanding, so memory is
// bounded. With one job everything happens inside put().
template <typename Item, typename Result, typename Worker>
class OrderedWork {
 public:
  OrderedWork(unsigned jobs, const std::function<Worker()>& make_worker, std::function<void(Result&&)> deliver)
      : deliver_(std::move(deliver)), window_(std::uint64_t(jobs) * 8 + 32) {
    if (jobs <= 1) {
      own_worker_.emplace(make_worker());
      return;
    }
    for (unsigned i = 0; i < jobs; ++i)
      threads_.emplace_back([this, worker = make_worker()]() mutable { work(worker); });
  }
  ~OrderedWork() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      if (!finished_) queue_.clear();  // an exception is on its way out: nobody waits for the rest
    }
    changed_.notify_all();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  // Throws what a worker or `deliver` threw before.
  void put(Item&& item) {
    if (own_worker_) return deliver_((*own_worker_)(std::move(item)));
    std::unique_lock lock(mutex_);
    wait_for_room(lock);
    queue_.emplace_back(next_++, std::move(item));
    changed_.notify_all();
  }

  // A result that the caller made itself, in its turn.
  void put_result(Result&& result) {
    if (own_worker_) return deliver_(std::move(result));
    std::unique_lock lock(mutex_);
    wait_for_room(lock);
    done_.emplace(next_++, std::move(result));
    deliver_ready(lock);
  }

  // Waits until everything was delivered.
  void finish() {
    if (own_worker_) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || delivered_ == next_; });
    if (error_) std::rethrow_exception(error_);
    finished_ = true;
  }

 private:
  void wait_for_room(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return error_ || next_ - delivered_ < window_; });
    if (error_) std::rethrow_exception(error_);
  }

  void work(Worker& worker) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closed_ || error_ || !queue_.empty(); });
      if (closed_ || error_) return;
      auto [number, item] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr error;
      try {
        result.emplace(worker(std::move(item)));
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) {
        fail(error);
        return;
      }
      done_.emplace(number, std::move(*result));
      deliver_ready(lock);
    }
  }

  // The lock is not held over deliver_; `delivering_` keeps others out meanwhile, and what they finish is picked up
  // here.
  void deliver_ready(std::unique_lock<std::mutex>& lock) {
    if (delivering_) return;
    delivering_ = true;
    for (auto ready = done_.find(delivered_); ready != done_.end() && !error_; ready = done_.find(delivered_)) {
      auto result = std::move(ready->second);
      done_.erase(ready);
      lock.unlock();
      std::exception_ptr error;
      try {
        deliver_(std::move(result));
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) fail(error);
      ++delivered_;
      changed_.notify_all();
    }
    delivering_ = false;
  }

  void fail(const std::exception_ptr& error) {
    if (!error_) error_ = error;
    changed_.notify_all();
  }

  std::function<void(Result&&)> deliver_;
  const std::uint64_t window_;
  std::optional<Worker> own_worker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<std::uint64_t, Item>> queue_;
  std::map<std::uint64_t, Result> done_;
  std::uint64_t next_ = 0, delivered_ = 0;
  bool delivering_ = false, closed_ = false, finished_ = false;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;  // last: ends before what it uses
};

}  // namespace varve::notebooks
