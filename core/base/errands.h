#pragma once
// Work that nobody waits for, one after the other in a thread of its own, which begins with the first.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace varve {

// Safe to use from any thread.
class Errands {
 public:
  using Errand = std::function<void(std::stop_token)>;  // must not throw

  // The first begins so long after it was added, or when somebody waits for it; the others follow at once.
  explicit Errands(std::chrono::milliseconds rest = {}) : rest_(rest) {}
  // False, and nothing is done, while `kMost` are waiting. Throws std::system_error without a thread.
  bool add(Errand errand);
  // Returns when nothing is waiting or under way.
  void wait();
  // Asks the one under way to stop, forgets the others, and waits.
  ~Errands();

  static constexpr std::size_t kMost = 16;

 private:
  void work(const std::stop_token& stop);

  const std::chrono::milliseconds rest_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Errand> waiting_;
  bool is_working_ = false;
  unsigned waiters_ = 0;
  std::jthread thread_;
};

}  // namespace varve
