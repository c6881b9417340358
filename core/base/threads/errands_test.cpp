#include "core/base/threads/errands.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <semaphore>
#include <thread>
#include <vector>

namespace varve {
namespace {

TEST(Errands, AreDoneInOrderAndWaitedFor) {
  std::vector<int> done;
  Errands errands;
  errands.wait();  // for nothing
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(errands.add([&done, i](const std::stop_token&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      done.push_back(i);
    }));
  errands.wait();
  EXPECT_EQ(done, (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(Errands, RestUntilSomebodyWaits) {
  int done = 0;
  {
    Errands errands(std::chrono::hours(1));
    ASSERT_TRUE(errands.add([&](const std::stop_token&) { ++done; }));
    errands.hurry();  // for nothing
    errands.wait();
    EXPECT_EQ(done, 1);
    ASSERT_TRUE(errands.add([&](const std::stop_token&) { ++done; }));
  }
  EXPECT_EQ(done, 1) << "who does not wait forgets it";
}

TEST(Errands, NobodyNeedWaitForAllOfThem) {
  std::binary_semaphore first(0), go_on(0);
  Errands errands(std::chrono::hours(1), 1);
  ASSERT_TRUE(errands.add([&](const std::stop_token&) {
    first.release();
    go_on.acquire();
  }));
  EXPECT_FALSE(errands.add([](const std::stop_token&) {})) << "one may wait";
  errands.hurry();
  first.acquire();
  go_on.release();
}

TEST(Errands, AreRefusedWhileTooManyWaitAndForgottenInTheEnd) {
  std::binary_semaphore begun(0), go_on(0);
  std::atomic<int> done = 0;
  {
    Errands errands;
    ASSERT_TRUE(errands.add([&](const std::stop_token& stop) {
      begun.release();
      go_on.acquire();
      while (!stop.stop_requested()) std::this_thread::yield();
      ++done;
    }));
    begun.acquire();
    for (std::size_t i = 0; i < Errands::kMost; ++i) EXPECT_TRUE(errands.add([&](const std::stop_token&) { ++done; }));
    EXPECT_FALSE(errands.add([&](const std::stop_token&) { ++done; }));
    go_on.release();
  }
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace varve
