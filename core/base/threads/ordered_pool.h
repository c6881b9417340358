#pragma once
// Work spread over threads whose results come out in the order in which the work went in.
#include <deque>
#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/threads/bounded_queue.h"

namespace varve {

// For one thread, which puts in and takes out; the workers have threads of their own. What has not begun when it is
// destroyed is dropped.
template <typename In, typename Out>
class OrderedPool {
 public:
  using Worker = std::function<Out(In&&)>;

  // `make_worker` is called in each thread, before its first work. `max_pending`: of what is in there, done or not.
  // Without threads (0) work is done as it is put in, by who puts it in.
  OrderedPool(unsigned threads, std::size_t max_pending, std::function<Worker()> make_worker)
      : max_pending_(max_pending), queue_(max_pending), make_worker_(std::move(make_worker)) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~OrderedPool() { queue_.abort(); }
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;

  bool empty() const { return pending_.empty(); }
  bool has_room() const { return pending_.size() < max_pending_; }

  // Needs room.
  void add(In in) {
    const auto job = pending_.emplace_back(std::make_shared<Job>());
    job->in = std::move(in);
    if (threads_.empty()) return run(*job, own_worker_);
    queue_.push(job);
  }
  // Waits while there is no room, and delivers what is done, as drain() does.
  template <typename Deliver>
  void add(In in, const Deliver& deliver) {
    make_room(deliver);
    add(std::move(in));
  }
  // The same with a result that the caller made itself.
  template <typename Deliver>
  void add_done(Out out, const Deliver& deliver) {
    make_room(deliver);
    const auto job = pending_.emplace_back(std::make_shared<Job>());
    job->out = std::move(out);
    job->done.count_down();
  }
  // The first result. Waits for it; throws what its work threw. Not of an empty pool.
  Out take() {
    const auto first = std::move(pending_.front());
    pending_.pop_front();
    first->done.wait();
    if (first->failure) std::rethrow_exception(first->failure);
    return std::move(*first->out);
  }
  // Waits for all that is left; deliver(Out&&) gets each result in its turn, in this thread.
  template <typename Deliver>
  void drain(const Deliver& deliver) {
    while (!empty()) deliver(take());
  }

 private:
  struct Job {
    std::optional<In> in;
    std::optional<Out> out;
    std::exception_ptr failure;
    std::latch done{1};
  };

  template <typename Deliver>
  void make_room(const Deliver& deliver) {
    while (!has_room() || (!empty() && pending_.front()->done.try_wait())) deliver(take());
  }

  void work() {
    Worker worker;
    while (const auto job = queue_.pop()) run(**job, worker);
  }

  void run(Job& job, Worker& worker) {
    try {
      if (!worker) worker = make_worker_();
      job.out.emplace(worker(std::move(*job.in)));
    } catch (...) {
      job.failure = std::current_exception();
    }
    job.in.reset();
    job.done.count_down();
  }

  const std::size_t max_pending_;
  BoundedQueue<std::shared_ptr<Job>> queue_;
  const std::function<Worker()> make_worker_;
  std::deque<std::shared_ptr<Job>> pending_;
  Worker own_worker_;                  // where there are no threads
  std::vector<std::jthread> threads_;  // last: they end first
};

}  // namespace varve
