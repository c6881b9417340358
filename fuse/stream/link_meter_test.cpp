#include "fuse/stream/link_meter.h"

#include <gtest/gtest.h>

namespace varve::fuse {
namespace {

using namespace std::chrono_literals;

class LinkMeterTest : public testing::Test {
 protected:
  // A request over an idle link of that rate, in parts of 64 KiB, `wait` after which the first comes.
  void request(std::chrono::milliseconds wait, std::uint64_t parts, double bytes_per_second) {
    const auto asked = now_;
    meter_.note_request(asked);
    now_ += wait;
    meter_.note_answer(asked, now_);
    for (std::uint64_t i = 0; i < parts; ++i) {
      meter_.note_bytes(kPart, now_);
      now_ += std::chrono::duration_cast<Clock::TimePoint::duration>(
          std::chrono::duration<double>(double(kPart) / bytes_per_second));
    }
    meter_.note_end();
  }

  static constexpr std::uint64_t kPart = 64 << 10;
  Clock::TimePoint now_ = Clock::TimePoint() + 1h;
  LinkMeter meter_;
};

TEST_F(LinkMeterTest, KnowsNothingAtFirst) {
  EXPECT_EQ(meter_.speed().answer_seconds, 0);
  EXPECT_EQ(meter_.speed().bytes_per_second, 0);
  EXPECT_EQ(meter_.speed().bytes_under_way(), 0u);
}

TEST_F(LinkMeterTest, TakesTheShortestWaitAndTheHighestRate) {
  request(20ms, 100, 25e6);
  request(25ms, 100, 20e6);
  EXPECT_NEAR(meter_.speed().answer_seconds, 0.020, 1e-9);
  EXPECT_NEAR(meter_.speed().bytes_per_second, 25e6, 25e3);
  EXPECT_NEAR(double(meter_.speed().bytes_under_way()), 500e3, 500);
}

TEST_F(LinkMeterTest, ShortRequestsSayNothingOfTheRate) {
  for (int i = 0; i < 100; ++i) request(2ms, 10, 1e9);  // 0.7 ms each
  EXPECT_NEAR(meter_.speed().answer_seconds, 0.002, 1e-9);
  EXPECT_EQ(meter_.speed().bytes_per_second, 0);
}

TEST_F(LinkMeterTest, SeveralRequestsShareTheLink) {
  const auto asked = now_;
  for (int i = 0; i < 8; ++i) meter_.note_request(asked);
  for (int i = 0; i < 1000; ++i) {  // of any of them: 100 MB/s
    now_ += 1ms;
    if (i < 8) meter_.note_answer(asked, now_);
    meter_.note_bytes(100'000, now_);
  }
  for (int i = 0; i < 8; ++i) meter_.note_end();
  EXPECT_NEAR(meter_.speed().bytes_per_second, 100e6, 1e3);
  EXPECT_NEAR(meter_.speed().answer_seconds, 0.001, 1e-9);
}

TEST_F(LinkMeterTest, WhatIdledBetweenRequestsIsNoTransfer) {
  for (int i = 0; i < 5; ++i) {
    request(5ms, 200, 100e6);
    now_ += 300ms;
  }
  EXPECT_NEAR(meter_.speed().bytes_per_second, 100e6, 1e5);
}

TEST_F(LinkMeterTest, ForgetsWhatTheLinkOnceWas) {
  request(1ms, 10'000, 100e6);
  for (int i = 0; i < 40; ++i) {
    request(30ms, 100, 10e6);
    now_ += 1s;
  }
  EXPECT_NEAR(meter_.speed().answer_seconds, 0.030, 1e-9);
  EXPECT_NEAR(meter_.speed().bytes_per_second, 10e6, 1e4);
}

TEST_F(LinkMeterTest, RemembersWhatItWasBeforeALongPause) {
  request(10ms, 1'000, 100e6);
  now_ += 24h;
  EXPECT_NEAR(meter_.speed().answer_seconds, 0.010, 1e-9);
  meter_.note_request(now_);  // another begins: still the best that is known
  EXPECT_NEAR(meter_.speed().bytes_per_second, 100e6, 1e5);
  meter_.note_end();
}

TEST_F(LinkMeterTest, ARequestWithoutAnAnswerCountsForNothing) {
  meter_.note_request(now_);
  now_ += 10s;
  meter_.note_end();
  EXPECT_EQ(meter_.speed().answer_seconds, 0);
  request(2ms, 0, 1e6);
  EXPECT_NEAR(meter_.speed().answer_seconds, 0.002, 1e-9);
}

}  // namespace
}  // namespace varve::fuse
