#include "core/base/threads/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

namespace varve {
namespace {

TEST(ParallelForTest, DoesEachItemOnce) {
  for (const std::size_t jobs : {0, 1, 3, 100}) {
    std::vector<std::atomic<int>> done(57);
    parallel_for(done.size(), jobs, CancelFlag(), [&](std::size_t item, const CancelFlag&) { ++done[item]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
  parallel_for(0, 4, CancelFlag(), [](std::size_t, const CancelFlag&) { FAIL(); });
}

TEST(ParallelForTest, WorksOnSeveralAtATime) {
  std::latch both(2);
  parallel_for(2, 2, CancelFlag(),
               [&](std::size_t, const CancelFlag&) { both.arrive_and_wait(); });  // would wait for ever on one thread
  EXPECT_TRUE(both.try_wait());
}

TEST(ParallelForTest, StopsAfterTheFirstFailureAndTellsTheOthers) {
  std::latch both(2);
  std::atomic<int> begun = 0;
  EXPECT_THROW(parallel_for(1000, 2, CancelFlag(),
                            [&](std::size_t item, const CancelFlag& stop) {
                              ++begun;
                              if (item < 2) both.arrive_and_wait();
                              if (item == 0) throw std::runtime_error("first");
                              while (!stop.cancelled()) std::this_thread::yield();
                            }),
               std::runtime_error);
  EXPECT_LE(begun, 3);
}

TEST(ParallelForTest, EndsAllWhenTheWholeIsCancelled) {
  CancelFlag whole;
  std::atomic<int> begun = 0;
  EXPECT_THROW(parallel_for(1000, 2, whole,
                            [&](std::size_t, const CancelFlag& stop) {
                              if (++begun == 2) whole.cancel();
                              while (!stop.cancelled()) std::this_thread::yield();
                            }),
               Cancelled);
  EXPECT_LE(begun, 3);
}

}  // namespace
}  // namespace varve
