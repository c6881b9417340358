#pragma once
// When is a GPU slower than it was? The statistics of hourly runs: suspicious hours, alarms, and two images or drivers
// side by side. Pure functions of numbers.
//
// An hour is suspicious when its median is above the threshold: (1 + tolerated) x baseline, and baseline + 4 spreads
// where that is more. Baseline and spread are median and 1.4826 x MAD of the medians of the last 168 clean hours. An
// alarm needs two suspicious hours of the last three, and a rank test of all samples of these three against those of
// the 48 clean hours before them. Hours are counted by the runs that were made: one without a run says nothing.
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/check_result.h"

namespace varve::gpu {

inline constexpr std::uint32_t kBaselineHours = 168;
inline constexpr std::uint32_t kRecentHours = 3;
inline constexpr std::uint32_t kSuspiciousForAlarm = 2;   // of kRecentHours
inline constexpr std::uint32_t kCleanPerRecentHour = 16;  // 48 clean hours against 3
inline constexpr double kAlarmZ = 3.09;                   // one chance in a thousand, were samples independent
// Before that many clean hours nothing is judged: so many the rank test wants, they are two whole days, and on fewer
// the spread is too often too small by chance (docs/design/gpu-alarms.md has the false alarms).
inline constexpr std::uint32_t kLearningHours = 48;
// Where hours hold few samples (cold calls are repeated less), more than kRecentHours are tested, until they hold so
// many: three samples against any number of slower ones cannot reach kAlarmZ.
inline constexpr std::uint32_t kTestedSamples = 7;

// One hour of one metric: repetitions in fresh processes, without throttled ones. Seconds.
struct Hour {
  std::int64_t hour = 0;  // Unix seconds / 3600
  std::vector<double> samples;
  bool suspicious = false;  // what judge() said when the hour came; not read of the hour that is judged
};

// 0.05 for kSteady, 0.10 for kFirstCall, 0.25 for kCold.
double tolerated(MetricKind kind);

struct Judgement {
  enum class State : std::uint8_t { kLearning, kGood, kSuspicious, kAlarm };
  State state = State::kLearning;
  double median = 0;    // of the last hour
  double baseline = 0;  // of the clean hours before it that there are, also while learning; 0 if there are none
  double spread = 0;
  double threshold = 0;                // 0 while learning
  double z = 0;                        // one-sided Mann-Whitney, the last hours against clean ones; 0 while learning
  std::uint32_t suspicious_hours = 0;  // of the last 3, this one included
  std::uint32_t clean_hours = 0;       // that the baseline stands on; kLearningHours are needed

  bool suspicious() const { return state == State::kSuspicious || (state == State::kAlarm && median > threshold); }
};

// Judges the last of `hours` (ascending, no two alike) by those before it. The flags of these are believed: an hour
// that was suspicious never enters the baseline. Reads back no further than needed, so the whole past may be passed.
Judgement judge(std::span<const Hour> hours, MetricKind kind);

// The first hour of the slowdown that the last hour is part of: the oldest suspicious one with no two good hours in a
// row after it. 0: no hour is suspicious.
std::int64_t slow_since(std::span<const Hour> hours, const Judgement& judgement);

// 0 of nothing. Of an even number the mean of the two in the middle.
double median(std::span<const double> values);
// 1.4826 x the median distance from the median: of normal noise the standard deviation.
double spread(std::span<const double> values);
// One-sided: positive when `now` tends to be larger than `before`. Normal approximation, ties are corrected for, no
// continuity correction. 0 if one is empty or all values are the same.
double mann_whitney_z(std::span<const double> now, std::span<const double> before);

// Fewer are never a verdict: of six pairs by chance all point one way once in 32 times.
inline constexpr std::size_t kMinimumPairs = 6;

// Pairs of one interleaved comparison: first seconds with A, second with B. The interval is a bootstrap's over the
// ratio of medians, B / A.
struct Comparison {
  enum class Verdict : std::uint8_t {
    kUndecided,  // the interval has 1 + tolerated(kind) in it: more pairs are needed
    kNotSlower,
    kSlower,  // low > 1 + tolerated(kind)
  };
  Verdict verdict = Verdict::kUndecided;
  double ratio = 0;
  double low = 0, high = 0;  // 95 %
};
// The same seed gives the same interval. Pairs must be above 0 seconds. All 0 without pairs.
Comparison compare(std::span<const std::pair<double, double>> pairs, MetricKind kind, std::uint64_t seed);

}  // namespace varve::gpu
