#include "analyzer/fleet/pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class PoolsTest : public ::testing::Test {
 protected:
  std::vector<Pool> pools(const ToJudge& to_judge = {}) const {
    return simulate_pools(demand_, machines_, promise_, to_judge, {.hours = 24 * 20, .seed = 7}, cancel_);
  }
  Demand demand_{.arrivals_per_hour = {40}};
  const Machines machines_;
  Promise promise_{.seconds = 5, .share = 0.95};
  CancelFlag cancel_;
};

TEST_F(PoolsTest, TheSmallestThatKeepsThePromiseIsLookedFor) {
  const auto found = pools();
  ASSERT_THAT(found, SizeIs(1)) << "a demand without hours has nothing to follow";
  EXPECT_EQ(found[0].kind, PoolKind::kConstant);
  ASSERT_THAT(found[0].machines, SizeIs(1));
  EXPECT_TRUE(promise_.kept_by(found[0].outcome));
  const auto smaller = pools({.warm = found[0].machines[0] - 1, .fixed = {}});
  EXPECT_FALSE(promise_.kept_by(smaller[0].outcome));
}

TEST_F(PoolsTest, ADemandWithHoursIsAlsoFollowed) {
  demand_.arrivals_per_hour = {2, 60};
  const auto found = pools();
  ASSERT_THAT(found, SizeIs(2));
  EXPECT_EQ(found[1].kind, PoolKind::kByHour);
  EXPECT_THAT(found[1].machines, SizeIs(2));
  EXPECT_EQ(found[0].outcome.arrivals, found[1].outcome.arrivals) << "the same people";
}

TEST_F(PoolsTest, WhatIsToBeJudgedIsTakenAsItIs) {
  demand_.arrivals_per_hour = {2, 60};
  const auto warm = pools({.warm = 3, .fixed = {}});
  ASSERT_THAT(warm, SizeIs(1));
  EXPECT_EQ(warm[0].kind, PoolKind::kConstant);
  EXPECT_THAT(warm[0].machines, ElementsAre(3));
  const auto fixed = pools({.warm = {}, .fixed = 50});
  ASSERT_THAT(fixed, SizeIs(1));
  EXPECT_EQ(fixed[0].kind, PoolKind::kFixed);
  EXPECT_THAT(fixed[0].machines, ElementsAre(50));
  EXPECT_EQ(pools({.warm = 3, .fixed = 50})[0].kind, PoolKind::kFixed);
}

TEST_F(PoolsTest, APromiseThatNoPoolCanKeepIsAnError) {
  promise_.seconds = machines_.start_warm / 2;
  EXPECT_THROW(pools(), UsageError);
  EXPECT_FALSE(promise_.kept_by(pools({.warm = 1000, .fixed = {}})[0].outcome));
}

TEST_F(PoolsTest, CanBeCancelled) {
  cancel_.cancel();
  EXPECT_THROW(pools(), Cancelled);
}

TEST(PoolKindTest, NamesAreThoseOfTheDocument) {
  EXPECT_EQ(pool_kind_name(PoolKind::kConstant), "constant");
  EXPECT_EQ(pool_kind_name(PoolKind::kByHour), "by-hour");
  EXPECT_EQ(pool_kind_name(PoolKind::kFixed), "fixed");
}

}  // namespace
}  // namespace varve::fleet
