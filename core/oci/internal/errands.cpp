#include "core/oci/internal/errands.h"

#include <utility>

namespace varve::oci::internal {

bool Errands::add(Errand errand) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMost) return false;
  waiting_.push_back(std::move(errand));
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
  changed_.notify_one();
  return true;
}

Errands::~Errands() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Errands::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    const auto errand = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    errand(stop);
    lock.lock();
  }
}

}  // namespace varve::oci::internal
