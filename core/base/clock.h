#pragma once
#include <chrono>
#include <thread>

namespace varve {

// Time as the retrying and waiting code sees it, so that tests can turn it by hand. Safe to use from any thread.
class Clock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  virtual ~Clock() = default;
  virtual TimePoint now() const { return std::chrono::steady_clock::now(); }
  virtual void sleep_for(std::chrono::milliseconds duration) { std::this_thread::sleep_for(duration); }
  // The one real clock of the process.
  static Clock& system();
};

// Seconds since it was made, for reports.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace varve
