#include "cli/gpu_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace varve::cli {
namespace {

using testing::HasSubstr;

gpu::Simulation small() {
  gpu::Simulation simulation;
  simulation.rows.push_back({.kind = gpu::MetricKind::kSteady,
                             .shape = gpu::SeriesShape::kDaily,
                             .repetitions = 7,
                             .noise = 0.01,
                             .hours = 12'000,
                             .alarms = 0,
                             .mean_alarms = 336,
                             .rank_alarms = 2'552,
                             .suspicious = 3,
                             .shifts = 3,
                             .delays = {1, 1, 2}});
  return simulation;
}

std::string printed(const gpu::Simulation& simulation) {
  std::ostringstream out;
  print_simulation(simulation, out);
  return out.str();
}

TEST(GpuSimulation, IsATableWithAVerdict) {
  const auto text = printed(small());
  EXPECT_THAT(text, HasSubstr("daily wave"));
  EXPECT_THAT(text, HasSubstr("28.0"));
  EXPECT_THAT(text, HasSubstr("212.7"));
  EXPECT_THAT(text, HasSubstr("1 / 1 / 2"));
  EXPECT_THAT(text, HasSubstr("\nholds: "));
}

TEST(GpuSimulation, SaysWhereItDoesNotHold) {
  auto simulation = small();
  simulation.rows[0].delays = {1};
  EXPECT_THAT(printed(simulation), HasSubstr("(2 of 3 not within a week)"));
  EXPECT_THAT(printed(simulation), HasSubstr("does not hold"));
  simulation.rows[0].delays.clear();
  EXPECT_THAT(printed(simulation), HasSubstr("none (3 of 3"));
  simulation = small();
  simulation.rows[0].alarms = 1;
  EXPECT_THAT(printed(simulation), HasSubstr("does not hold"));
}

TEST(GpuSimulation, IsOneJsonDocument) {
  const auto json = simulation_json(small());
  EXPECT_EQ(json["holds"], true);
  EXPECT_EQ(json["rows"][0]["false_alarms"], 0);
  EXPECT_EQ(json["rows"][0]["kind"], "steady");
  EXPECT_EQ(json["rows"][0]["delays_hours"], (std::vector<int>{1, 1, 2}));
}

}  // namespace
}  // namespace varve::cli
