#pragma once
// Requests that nobody waits for, one after the other in a thread of their own, which begins with the first.
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace varve::oci::internal {

// Safe to use from any thread.
class Errands {
 public:
  using Errand = std::function<void(std::stop_token)>;  // must not throw

  // False, and nothing is done, while `kMost` are waiting.
  bool add(Errand errand);
  // Asks the one under way to stop, forgets the others, and waits.
  ~Errands();

  static constexpr std::size_t kMost = 16;

 private:
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Errand> waiting_;
  std::jthread thread_;
};

}  // namespace varve::oci::internal
