#pragma once
// Looks at something now and then, beside other work.
#include <chrono>
#include <functional>
#include <thread>

namespace varve {

// Calls `tick`, which must not throw, after each interval in a thread of its own, until it is destroyed: that waits for
// a call under way, not for the next one.
class Ticker {
 public:
  Ticker(std::chrono::milliseconds interval, std::function<void()> tick);

 private:
  std::jthread thread_;
};

}  // namespace varve
