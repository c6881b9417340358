#include "core/base/threads/ticker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

namespace varve {
namespace {

TEST(TickerTest, CallsAgainAndAgainUntilItIsDestroyed) {
  std::latch three(3);
  std::atomic<bool> there = true;
  std::atomic<int> calls = 0;
  {
    const Ticker ticker(std::chrono::milliseconds(1), [&] {
      EXPECT_TRUE(there);
      if (++calls <= 3) three.count_down();
    });
    three.wait();
  }
  there = false;
  EXPECT_GE(calls, 3);
}

TEST(TickerTest, IsDestroyedWithoutWaitingForTheNextCall) {
  const Ticker ticker(std::chrono::hours(24), [] { FAIL(); });
}

}  // namespace
}  // namespace varve
