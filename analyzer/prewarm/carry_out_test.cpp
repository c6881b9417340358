#include "analyzer/prewarm/carry_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::prewarm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CarryOutTest : public ::testing::Test {
 protected:
  void item(std::size_t image, std::uint64_t bytes, std::vector<std::uint64_t> offsets) {
    auto& one = plan_.items.emplace_back();
    one.image = image;
    one.download_bytes = bytes;
    for (const auto offset : offsets) one.ranges.push_back({layer_, {.offset = offset, .length = 1}});
    plan_.download_bytes += bytes;
  }
  // Each call costs what `costs_` says, in order; then nothing.
  Outcome run() {
    return carry_out(plan_, options_,
                     [this](std::size_t image, std::span<const LayerRange> ranges, const FetchProgress& progress) {
                       std::string call = fmt::format("image {}:", image);
                       for (const auto& range : ranges) call += fmt::format(" {}", range.stream_range.offset);
                       calls_.push_back(call);
                       if (during_) during_(progress);
                       const auto i = calls_.size() - 1;
                       return i < costs_.size() ? costs_[i] : 0;
                     },
                     {progress_, cancel_});
  }

  const Digest layer_ = digest_of("layer");
  Plan plan_;
  CarryOutOptions options_{.budget_bytes = 1000, .max_ranges = 2};
  std::vector<std::uint64_t> costs_;
  std::vector<std::string> calls_;
  std::function<void(const FetchProgress&)> during_;
  Progress progress_;
  CancelFlag cancel_;
};

TEST_F(CarryOutTest, KeepsThePlansOrderInCallsThatAreNotTooLarge) {
  item(1, 300, {5, 3, 9, 1, 7});
  item(0, 100, {4, 6});
  costs_ = {100, 100, 90, 80};
  const auto outcome = run();
  EXPECT_THAT(calls_, ElementsAre("image 1: 5 3", "image 1: 9 1", "image 1: 7", "image 0: 4 6"));
  EXPECT_THAT(outcome.fetched_bytes, ElementsAre(290, 80));
  EXPECT_THAT(outcome.left, ElementsAre(false, false));
  EXPECT_EQ(outcome.sum_bytes, 370u);
}

TEST_F(CarryOutTest, ItemsWithoutRangesAreNobodysWork) {
  item(0, 0, {});
  item(0, 700, {});  // too large: what it would have taken
  plan_.download_bytes = 0;
  const auto outcome = run();
  EXPECT_THAT(calls_, IsEmpty());
  EXPECT_THAT(outcome.left, ElementsAre(false, false));
  EXPECT_EQ(progress_.expected_bytes(), 0u);
}

TEST_F(CarryOutTest, BrokenTransfersTakeTheShareOfWhatComesLast) {
  item(0, 400, {1});
  item(0, 400, {2});
  item(0, 100, {3});
  costs_ = {650, 90};
  const auto outcome = run();
  EXPECT_THAT(calls_, ElementsAre("image 0: 1", "image 0: 3")) << "a smaller one still fits";
  EXPECT_THAT(outcome.left, ElementsAre(false, true, false));
  EXPECT_THAT(outcome.fetched_bytes, ElementsAre(650, 0, 90));
  EXPECT_EQ(outcome.sum_bytes, 740u);
}

TEST_F(CarryOutTest, ProgressIsThatOfThePlanAndNeverGoesBack) {
  item(0, 100, {1, 2, 3});
  item(0, 50, {4});
  std::vector<std::uint64_t> seen;
  during_ = [&](const FetchProgress& progress) {
    for (const auto done : {0, 5, 10}) {
      progress(done, 10);
      seen.push_back(progress_.done_bytes());
    }
    progress(0, 0);  // nothing expected is no division by zero
  };
  run();
  EXPECT_THAT(seen, ElementsAre(0, 50, 100, 100, 100, 100, 100, 125, 150));
  EXPECT_EQ(progress_.expected_bytes(), 150u);
  EXPECT_EQ(progress_.done_bytes(), 150u);
}

TEST_F(CarryOutTest, WhatCostLessThanPlannedIsDoneAllTheSame) {
  item(0, 100, {1});
  run();
  EXPECT_EQ(progress_.done_bytes(), 100u);
}

TEST_F(CarryOutTest, AFailureEndsIt) {
  item(0, 100, {1});
  item(0, 100, {2});
  during_ = [](const FetchProgress&) { throw TemporaryError("the daemon is gone"); };
  EXPECT_THROW(run(), TemporaryError);
  EXPECT_THAT(calls_, ElementsAre("image 0: 1"));
}

TEST_F(CarryOutTest, NothingIsAskedForAfterItWasCancelled) {
  item(0, 100, {1});
  item(0, 100, {2});
  during_ = [this](const FetchProgress&) { cancel_.cancel(); };
  EXPECT_THROW(run(), Cancelled);
  EXPECT_THAT(calls_, ElementsAre("image 0: 1"));
}

}  // namespace
}  // namespace varve::prewarm
