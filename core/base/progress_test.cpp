#include "core/base/progress.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(ProgressTest, CountsFromManyThreads) {
  Progress progress;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < 1000; ++n) progress.add(3);
      });
  }
  EXPECT_EQ(progress.done_bytes(), 12'000u);
}

}  // namespace
}  // namespace varve
