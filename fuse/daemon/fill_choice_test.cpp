#include "fuse/daemon/fill_choice.h"

#include <gtest/gtest.h>

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kRoom = 1'000'000 * kMiB;

TEST(FillChoice, WhoHasReadHalfOfALargeImageReadsTheRest) {
  EXPECT_FALSE(most_is_read(1000 * kMiB, 501 * kMiB, kRoom));
  EXPECT_TRUE(most_is_read(1000 * kMiB, 500 * kMiB, kRoom));
  EXPECT_TRUE(most_is_read(kFillableBytes, kFillableBytes / 2, kRoom));
  EXPECT_FALSE(most_is_read(kFillableBytes - 1, 0, kRoom)) << "small";
  EXPECT_FALSE(most_is_read(1000 * kMiB, 0, kRoom)) << "all is here";
  EXPECT_FALSE(most_is_read(1000 * kMiB, 1001 * kMiB, kRoom)) << "evicted";
}

TEST(FillChoice, ItTakesAQuarterOfTheRoomAtMost) {
  EXPECT_TRUE(most_is_read(1000 * kMiB, 400 * kMiB, 1600 * kMiB));
  EXPECT_FALSE(most_is_read(1000 * kMiB, 400 * kMiB, 1599 * kMiB));
  EXPECT_FALSE(most_is_read(1000 * kMiB, 400 * kMiB, 0));
}

TEST(FillChoice, WhatIsColdIsNotMissed) {
  ImageStats stats;
  stats.image_stream_bytes = 1000;
  stats.cold_bytes = 300;
  stats.present_bytes = 250;
  stats.cold_present_bytes = 50;
  EXPECT_EQ(missing_bytes(stats), 500u);
  stats.present_bytes = 750;
  EXPECT_EQ(missing_bytes(stats), 0u);
}

}  // namespace
}  // namespace varve::fuse
