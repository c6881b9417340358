#include "core/base/threads/errands.h"

#include <utility>

namespace varve {

bool Errands::add(Errand errand) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= most_) return false;
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  waiting_.push_back(std::move(errand));
  changed_.notify_all();
  return true;
}

void Errands::hurry() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) rests_ = false;
  changed_.notify_all();
}

void Errands::wait() {
  hurry();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return waiting_.empty() && !is_working_; });
}

Errands::~Errands() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Errands::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    changed_.wait_for(lock, stop, rest_, [&] { return !rests_; });
    for (; !waiting_.empty() && !stop.stop_requested(); changed_.notify_all()) {
      const auto errand = std::move(waiting_.front());
      waiting_.pop_front();
      is_working_ = true;
      lock.unlock();
      errand(stop);
      lock.lock();
      is_working_ = false;
    }
    if (stop.stop_requested()) return;
    rests_ = true;
  }
}

}  // namespace varve
