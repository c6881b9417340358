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

  // The first begins after a rest since it was added; the others follow at once.
  explicit Errands(std::chrono::milliseconds rest = {}, std::size_t most = kMost) : rest_(rest), most_(most) {}
  // False, and nothing is done, while `most` are waiting. Throws std::system_error without a thread.
  bool add(Errand errand);
  // Ends the rest.
  void hurry();
  // The same, and returns when nothing is waiting or under way.
  void wait();
  // Asks the one under way to stop, forgets the others, and waits.
  ~Errands();

  static constexpr std::size_t kMost = 16;

 private:
  void work(const std::stop_token& stop);

  const std::chrono::milliseconds rest_;
  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Errand> waiting_;
  bool is_working_ = false;
  bool rests_ = true;
  std::jthread thread_;
};

}  // namespace varve
