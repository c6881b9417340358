#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "analyzer/fleet/queueing.h"
#include "analyzer/fleet/simulate.h"
#include "core/base/errors.h"

namespace varve::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const CancelFlag kNoCancel;

Demand steady(double per_hour) { return {.arrivals_per_hour = {per_hour}}; }

// M/M/c: the share of arrivals that find all `servers` busy. `load` = arrival rate x mean service time, below
// `servers`.
double erlang_c(std::uint32_t servers, double load) {
  // Erlang B by its recursion, which neither overflows nor cancels.
  double blocked = 1;
  for (std::uint32_t n = 1; n <= servers; ++n) blocked = load * blocked / (n + load * blocked);
  return servers * blocked / (servers - load * (1 - blocked));
}

// Poisson: what of the arrivals finds so many machines, or more, in the making.
double share_without_warm(std::uint32_t warm, double in_making) {
  double below = 0, term = std::exp(-in_making);
  for (std::uint32_t n = 0; n < warm; term *= in_making / ++n) below += term;
  return 1 - below;
}

TEST(Queueing, ErlangCAsInTheTables) {
  EXPECT_NEAR(erlang_c(1, 0.5), 0.5, 1e-12);      // M/M/1: the load itself
  EXPECT_NEAR(erlang_c(2, 1.0), 1.0 / 3, 1e-12);  // a^2 / (2 - a) / (1 + a + a^2 / (2 - a)) at a = 1
  EXPECT_NEAR(erlang_c(10, 8.0), 0.4092, 5e-5);   // Cooper, Introduction to Queueing Theory, appendix
  EXPECT_LT(erlang_c(2000, 1000), 1e-100);        // neither overflows nor is below zero
}

TEST(Queueing, WarmMachinesByPalm) {
  for (const double in_making : {0.0, 0.2, 3.0, 400.0}) {
    const auto warm = warm_for_share(in_making, 0.05);
    EXPECT_LE(share_without_warm(warm, in_making), 0.05) << in_making;
    if (warm > 0) {
      EXPECT_GT(share_without_warm(warm - 1, in_making), 0.05) << in_making;
    }
  }
}

// The simulator against the formulae: half a million arrivals leave an error of well below the tolerance.
TEST(FixedFleet, IsAnMMCQueue) {
  for (const auto& [count, load] : {std::pair(1u, 0.7), std::pair(10u, 8.0), std::pair(40u, 36.0)}) {
    Machines machines;
    machines.start_warm = 0;
    machines.session = 600;
    const auto demand = steady(load * 6);
    const auto outcome =
        simulate_fixed_fleet(demand, machines, count, {.hours = 500'000 / demand.mean(), .seed = 7}, kNoCancel);
    EXPECT_NEAR(double(outcome.delayed) / double(outcome.arrivals), erlang_c(count, load),
                0.02 * erlang_c(count, load) + 0.005)
        << count;
    const auto expected = erlang_c(count, load) * 600 / (count - load);
    EXPECT_NEAR(outcome.mean_wait, expected, 0.06 * expected) << count;
    EXPECT_NEAR(outcome.busy_hours / (outcome.busy_hours + outcome.idle_hours), load / count, 0.01) << count;
  }
}

TEST(WarmPool, FollowsPalmsTheorem) {
  Machines machines;
  machines.start_warm = 2;
  machines.make_warm = 300;
  for (const std::uint32_t warm : {0u, 2u, 5u, 8u}) {
    const auto outcome =
        simulate_warm_pool(steady(48), machines, {warm}, {.hours = 10'000, .seed = 3}, kNoCancel);  // 4 in the making
    EXPECT_NEAR(double(outcome.delayed) / double(outcome.arrivals), share_without_warm(warm, 4), 0.006) << warm;
    // Little's law for the machines in the making, and the mean stock of ready ones.
    EXPECT_NEAR(outcome.making_hours / 10'000, 4, 0.05) << warm;
  }
  const auto none = simulate_warm_pool(steady(48), machines, {0}, {.hours = 100, .seed = 3}, kNoCancel);
  EXPECT_EQ(none.p50, 302);
  EXPECT_EQ(none.idle_hours, 0);
}

TEST(WarmPool, TheSmallestPoolThatKeepsThePromise) {
  Machines machines;
  machines.make_warm = 300;
  const Simulated run{.hours = 2000, .seed = 5};
  const auto warm = smallest_pool(steady(48), machines, 10, 0.95, run, kNoCancel);
  EXPECT_LE(simulate_warm_pool(steady(48), machines, {warm}, run, kNoCancel).p95, 10);
  EXPECT_GT(simulate_warm_pool(steady(48), machines, {warm - 1}, run, kNoCancel).p95, 10);
  // With ten seconds of patience it is a little less than what nobody would have to wait with.
  EXPECT_NEAR(warm, warm_for_share(4, 0.05), 1);
  EXPECT_THAT([&] { smallest_pool(steady(48), machines, 1, 0.95, run, kNoCancel); },
              ThrowsMessage<UsageError>(HasSubstr("takes 2 s to start")));
}

TEST(WarmPool, FollowsTheDemandThroughTheDay) {
  Demand day;
  for (int hour = 0; hour < 24; ++hour) day.arrivals_per_hour.push_back(hour >= 8 && hour < 18 ? 60 : 2);
  Machines machines;
  machines.make_warm = 300;
  const auto warm = pool_by_hour(day, machines, 0.95);
  ASSERT_EQ(warm.size(), 24u);
  EXPECT_EQ(warm[7], warm[12]) << "those of eight o'clock are made before";
  EXPECT_LT(warm[3], 3u);
  const Simulated run{.hours = 24.0 * 200, .seed = 2};
  const auto by_hour = simulate_warm_pool(day, machines, warm, run, kNoCancel);
  const auto always = simulate_warm_pool(day, machines, {warm[12]}, run, kNoCancel);
  EXPECT_EQ(by_hour.arrivals, always.arrivals) << "the same people";
  EXPECT_LT(by_hour.idle_hours, 0.75 * always.idle_hours);
  EXPECT_LE(by_hour.p95, 60);
  EXPECT_EQ(by_hour.hourly_p95.size(), 24u);
}

TEST(Simulation, IsTheSameEachTimeAndAnotherWithAnotherSeed) {
  const auto run = [](std::uint64_t seed) {
    return simulate_warm_pool(steady(30), Machines(), {3}, {.hours = 500, .seed = seed}, kNoCancel);
  };
  EXPECT_EQ(run(1).waits, run(1).waits);
  EXPECT_NE(run(1).waits, run(2).waits);
}

TEST(Simulation, NobodyComes) {
  const auto outcome = simulate_warm_pool(steady(0), Machines(), {2}, {.hours = 10}, kNoCancel);
  EXPECT_EQ(outcome.arrivals, 0u);
  EXPECT_EQ(outcome.idle_hours, 20);
  EXPECT_EQ(outcome.p99, 0);
}

TEST(Simulation, RefusesWhatTakesForEver) {
  EXPECT_THAT([] { simulate_warm_pool(steady(1e6), Machines(), {2}, {.hours = 1e6}, kNoCancel); },
              ThrowsMessage<UsageError>(HasSubstr("take fewer days")));
}

TEST(DemandText, ListsAndTraces) {
  EXPECT_THAT(parse_arrivals("3, 5,12.5").arrivals_per_hour, ElementsAre(3, 5, 12.5));
  EXPECT_THAT([] { parse_arrivals("3,-1"); }, ThrowsMessage<UsageError>(HasSubstr("'-1'")));
  EXPECT_THAT([] { parse_arrivals("3,,1"); }, ThrowsMessage<UsageError>(HasSubstr("''")));
  EXPECT_THAT(parse_trace("hour,arrivals\r\n2026-10-01T00,3\r\n2026-10-01T01,7\n", "t.csv").arrivals_per_hour,
              ElementsAre(3, 7));
  EXPECT_THAT([] { parse_trace("hour,count\n1,2\n", "t.csv"); }, ThrowsMessage<CorruptData>(HasSubstr("t.csv:1:")));
  EXPECT_THAT([] { parse_trace("hour,arrivals\n1,2\n2\n", "t.csv"); },
              ThrowsMessage<CorruptData>(HasSubstr("t.csv:3:")));
  EXPECT_THAT([] { parse_trace("hour,arrivals\n1,nan\n", "t.csv"); },
              ThrowsMessage<CorruptData>(HasSubstr("t.csv:2:")));
  EXPECT_THAT([] { parse_trace("arrivals\n", "t.csv"); }, ThrowsMessage<CorruptData>(HasSubstr("holds no hour")));
}

}  // namespace
}  // namespace varve::fleet
