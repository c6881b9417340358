#include "core/base/progress.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(HumanBytesTest, UsesDecimalUnitsWithThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(15'300'000), "15.3 MB");
  EXPECT_EQ(human_bytes(999'990'000), "1.00 GB");
  EXPECT_EQ(human_bytes(4'915'900'000), "4.92 GB");
}

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
