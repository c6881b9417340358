#pragma once
// What the rules of judge.h are worth: made-up series with known noise, in which every alarm is false, and with known
// slowdowns, of which it is counted how long they stay unseen. Two simpler rules run beside them on the same numbers.
#include <cstdint>
#include <string_view>
#include <vector>

#include "gpu/judge.h"

namespace varve::gpu {

enum class SeriesShape : std::uint8_t {
  kNoise,  // log-normal, between repetitions and between hours
  kDrift,  // the same, slower by a fifth of what is tolerated every week
  kDaily,  // the same, with a wave of 24 hours, three tenths of what is tolerated high
  kBusy,   // the same, and one hour in two hundred is half as slow again as a whole: no noise to the rules; says what
           // such neighbours cost
};
std::string_view shape_name(SeriesShape shape);

struct SimulationOptions {
  std::uint64_t seed = 1;
  std::uint32_t hours = 3000;     // of every series, after learning
  std::uint32_t series = 4;       // of every row
  std::uint32_t repetitions = 7;  // an hour
  double outliers = 0.03;         // share of repetitions that take 1.3 to 4 times as long
  std::uint32_t shifts = 40;      // slowdowns of every row, each after a quiet week
  double shift = 2;               // in units of what is tolerated
};

struct SimulatedRow {
  MetricKind kind = MetricKind::kSteady;
  SeriesShape shape = SeriesShape::kNoise;
  std::uint32_t repetitions = 0;  // cold calls are simulated with one an hour, too
  double noise = 0;               // standard deviation of the logarithm of one repetition
  std::uint64_t hours = 0;
  // Hours in alarm, all of them false: by the rules; by "the hour's mean is above mean + 3 deviations of the last 168
  // hourly means"; by the rank test alone.
  std::uint64_t alarms = 0, mean_alarms = 0, rank_alarms = 0;
  std::uint64_t suspicious = 0;
  // Hours from the first slow one to the alarm: 0 only if the hour before was suspicious by chance. Ascending; those
  // not found within a week are missing.
  std::uint32_t shifts = 0;
  std::vector<std::uint32_t> delays;
};

struct Simulation {
  SimulationOptions options;
  std::vector<SimulatedRow> rows;
  // No false alarm but in kBusy, and every shift found within 2 hours (cold: 7), as docs/design/gpu-alarms.md promises
  // of 7 repetitions an hour and shifts of twice what is tolerated. Nothing is promised of the row with one repetition.
  bool holds() const;
};

// The same options give the same numbers.
Simulation simulate(const SimulationOptions& options);

}  // namespace varve::gpu
