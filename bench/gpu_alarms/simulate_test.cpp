#include "bench/gpu_alarms/simulate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace varve::gpu {
namespace {

SimulationOptions quick() { return {.seed = 11, .hours = 3000, .series = 1, .shifts = 12}; }

TEST(Simulate, KeepsWhatTheDocumentationPromises) {
  const auto simulation = simulate(quick());
  EXPECT_TRUE(simulation.holds());
  std::uint64_t hours = 0, mean_alarms = 0, rank_alarms = 0;
  for (const auto& row : simulation.rows) {
    SCOPED_TRACE(fmt::format("{} {} {}", to_string(row.kind), shape_name(row.shape), row.repetitions));
    EXPECT_EQ(row.hours, 3000U);
    if (row.repetitions == 1 || row.shape == SeriesShape::kBusy) continue;
    EXPECT_EQ(row.alarms, 0U);
    ASSERT_EQ(row.delays.size(), row.shifts);
    EXPECT_LE(row.delays[row.delays.size() / 2], 2U);
    // The simpler rules cry on the same numbers, which so are no quiet ones.
    EXPECT_GE(row.mean_alarms, 16U);
    EXPECT_GE(row.rank_alarms, 7U);
    hours += row.hours;
    mean_alarms += row.mean_alarms;
    rank_alarms += row.rank_alarms;
  }
  EXPECT_EQ(hours, 27'000U);
  EXPECT_GT(mean_alarms, hours * 16 / 1000);
  EXPECT_GT(rank_alarms, hours * 7 / 1000);
}

TEST(Simulate, GivesTheSameNumbersForTheSameSeedAndOthersForAnother) {
  auto options = quick();
  options.hours = 100;
  options.shifts = 2;
  const auto one = simulate(options), two = simulate(options);
  options.seed = 12;
  const auto other = simulate(options);
  unsigned different = 0;
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    EXPECT_EQ(one.rows[i].mean_alarms, two.rows[i].mean_alarms);
    EXPECT_EQ(one.rows[i].delays, two.rows[i].delays);
    different += one.rows[i].mean_alarms != other.rows[i].mean_alarms ? 1 : 0;
  }
  EXPECT_GT(different, 0U);
}

TEST(Simulate, DoesNotHoldWhereShiftsAreTooSmallToBeSeen) {
  auto options = quick();
  options.hours = 10;
  options.shifts = 4;
  options.shift = 0.5;
  EXPECT_FALSE(simulate(options).holds());
}

TEST(Simulate, DoesNotHoldWithAFalseAlarmOrAShiftThatIsFoundLate) {
  const SimulatedRow good{
      .shape = SeriesShape::kDaily, .repetitions = 7, .hours = 12'000, .shifts = 3, .delays = {1, 1, 2}};
  EXPECT_TRUE((Simulation{.options = {}, .rows = {good}}.holds()));
  auto row = good;
  row.delays = {1};
  EXPECT_FALSE((Simulation{.options = {}, .rows = {row}}.holds()));
  row = good;
  row.alarms = 1;
  EXPECT_FALSE((Simulation{.options = {}, .rows = {row}}.holds()));
}

}  // namespace
}  // namespace varve::gpu
