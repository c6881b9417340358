#pragma once
// When is a GPU slower than it was? The statistics of hourly runs: suspicious hours, alarms, and two images or drivers side by side. Pure functions of numbers.
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gpu/check_result.h"

namespace varve::gpu {

// One hour of one metric: repetitions in fresh processes, without throttled ones. Seconds.
struct Hour {
  std::int64_t hour = 0;  // Unix seconds / 3600
  std::vector<double> samples;
};

// 0.05 for kSteady, 0.10 for kFirstCall, 0.25 for kCold.
double tolerated(MetricKind kind);

struct Judgement {
  enum class State : std::uint8_t { kLearning, kGood, kSuspicious, kAlarm };
  State state = State::kLearning;
  double median = 0;        // of the last hour
  double baseline = 0;      // median of the hourly medians of the clean hours before, 0 while learning
  double spread = 0;        // 1.4826 x MAD of the same
  double z = 0;             // one-sided Mann-Whitney, the last 3 hours against 48 clean ones; 0 when not computed
  std::uint32_t suspicious_hours = 0;  // of the last 3
  std::uint32_t clean_hours = 0;       // that the baseline stands on
};

// Judges the last of `hours` (ascending, no two alike) by those before it. An hour that was suspicious is not clean: it does not enter the baseline, unless accepted.
Judgement judge(std::span<const Hour> hours, MetricKind kind);

// One-sided: positive when `now` tends to be larger than `before`. Ties are corrected for. 0 if one is empty.
double mann_whitney_z(std::span<const double> now, std::span<const double> before);

// Pairs of one interleaved comparison: first seconds with A, second with B. The interval is a bootstrap's over the ratio of medians, B / A.
struct Comparison {
  double ratio = 0;
  double low = 0, high = 0;  // 95 %
  bool slower = false;       // low > 1 + tolerated(kind)
};
Comparison compare(std::span<const std::pair<double, double>> pairs, MetricKind kind, std::uint64_t seed);

}  // namespace varve::gpu
