#include "gpu/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace varve::gpu {
namespace {

using State = Judgement::State;

// p values by SciPy 1.17.1: stats.mannwhitneyu(now, before, alternative="greater", method="asymptotic",
// use_continuity=False).
struct RankCase {
  std::vector<double> now, before;
  double p;
};
const std::vector<RankCase> kRankCases{
    {{1.1, 2.2, 3.3}, {0.5, 1.5, 2.5, 3.5}, 0.5},
    {{5, 5, 5, 6}, {1, 2, 5, 5, 3}, 0.030170266457823267},
    {{1, 2, 3}, {4, 5, 6}, 0.97523269328218665},
    {{7, 8, 9, 10}, {1, 1, 2, 2, 3, 3}, 0.0049116372537596244},
    {{1, 1, 1}, {1, 1, 2}, 0.84134474606854293},
    {{0.25}, {0.5, 0.125, 0.25, 0.75}, 0.64159974150275279},
    {{1.03,  1.037, 1.025, 1.012, 1.021, 1.01,  1.032, 1.058, 1.02,  1.018, 1.041,
      1.038, 1.033, 1.011, 1.03,  1.045, 1.003, 1.021, 0.992, 1.004, 0.993},
     {0.995, 0.975, 1.005, 1.003, 0.996, 0.951, 0.989, 0.999, 1.002, 0.97,  0.99,  0.981, 0.984, 1.021, 0.984, 0.999,
      1.018, 0.988, 0.998, 1.002, 1.001, 0.976, 1.002, 1.028, 0.97,  1.017, 1.002, 0.987, 1.041, 1.015, 0.976, 1.001,
      1.012, 0.996, 1.014, 0.999, 1.013, 1.029, 0.987, 1.004, 0.991, 1.003, 0.977, 0.988, 0.996, 1.018, 1.023, 0.974},
     2.4091658489962564e-06},
    {{1, 0.5, 1.25, 1.5, 0.75, 0.25, 1.75},
     {0.5,  0.5,  0, 0.25, 1.25, 0.5, 0, 0.75, 0.25, 1.75, 0.5, 0.5,  0.25, 0,    3.25,
      0.25, 1.25, 0, 1.75, 0,    0.5, 0, 0,    1,    1.5,  0.5, 0.75, 0.75, 0.25, 1.25},
     0.049630503439188671},
};

// numpy.median(values) and 1.4826 * scipy.stats.median_abs_deviation(values), SciPy 1.17.1.
struct SpreadCase {
  std::vector<double> values;
  double median, spread;
};
const std::vector<SpreadCase> kSpreadCases{
    {{1, 2, 3, 4, 100}, 3, 1.4825999999999999},
    {{2.5}, 2.5, 0},
    {{1, 1, 1, 5}, 1, 0},
    {{0.3, 0.1, 0.4, 0.1, 0.5, 0.9, 0.2, 0.6}, 0.34999999999999998, 0.29652000000000001},
    {{10.41, 10.99, 9.65, 9.59,  11.4, 11.04, 7.93, 9.84,  10.07, 7.89,  10.52, 8.28, 11.94, 10.39, 10.18, 8.82,
      9.76,  6,     7.74, 10.73, 5.74, 11.69, 6.51, 11.51, 8.31,  11.56, 10.26, 6.93, 12.5,  12.88, 9.87},
     10.07,
     1.9718579999999999},
};

TEST(MannWhitney, HasTheProbabilitiesOfSciPy) {
  for (const auto& [now, before, p] : kRankCases) {
    const double z = mann_whitney_z(now, before);
    EXPECT_NEAR(std::erfc(z / std::sqrt(2.0)) / 2, p, 1e-12 + 1e-9 * p) << now.size() << " against " << before.size();
    EXPECT_NEAR(mann_whitney_z(before, now), -z, 1e-12);
  }
}

TEST(MannWhitney, IsZeroWhereNothingCanBeSaid) {
  EXPECT_EQ(mann_whitney_z({}, std::vector<double>{1, 2}), 0);
  EXPECT_EQ(mann_whitney_z(std::vector<double>{1, 2}, {}), 0);
  EXPECT_EQ(mann_whitney_z(std::vector<double>{3, 3, 3}, std::vector<double>{3, 3}), 0);
}

TEST(Spread, HasTheValuesOfSciPy) {
  for (const auto& [values, middle, deviation] : kSpreadCases) {
    EXPECT_DOUBLE_EQ(median(values), middle);
    EXPECT_NEAR(spread(values), deviation, 1e-12);
  }
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(spread({}), 0);
}

// Hours as the history keeps them: each judged when it comes.
class JudgeTest : public testing::Test {
 protected:
  // Seven samples around `seconds`, one percent apart from the lowest to the highest.
  const Judgement& hour(double seconds, std::size_t samples = 7) {
    Hour hour{.hour = next_++, .samples = {}, .suspicious = false};
    for (std::size_t i = 0; i < samples; ++i)
      hour.samples.push_back(seconds * (1 + 0.01 * (double((i * 3 + std::size_t(hour.hour)) % 7) / 6 - 0.5)));
    hours_.push_back(hour);
    judgement_ = judge(hours_, kind_);
    hours_.back().suspicious = judgement_.suspicious();
    return judgement_;
  }
  void hours(std::uint32_t count, double seconds) {
    for (std::uint32_t i = 0; i < count; ++i) hour(seconds);
  }

  MetricKind kind_ = MetricKind::kSteady;
  std::int64_t next_ = 490'000;
  std::vector<Hour> hours_;
  Judgement judgement_;
};

TEST_F(JudgeTest, LearnsFirstAndSaysOnHowManyHours) {
  EXPECT_EQ(judge({}, kind_).state, State::kLearning);
  EXPECT_EQ(hour(1).clean_hours, 0U);
  for (std::uint32_t i = 1; i < kLearningHours; ++i) {
    EXPECT_EQ(hour(1).state, State::kLearning) << i;
    EXPECT_EQ(judgement_.clean_hours, i);
  }
  EXPECT_EQ(hour(1).state, State::kGood);
  EXPECT_NEAR(judgement_.baseline, 1, 0.01);
}

TEST_F(JudgeTest, WhileLearningNothingIsSuspicious) {
  hours(kLearningHours - 1, 1);
  EXPECT_EQ(hour(50).state, State::kLearning);
  EXPECT_FALSE(judgement_.suspicious());
}

TEST_F(JudgeTest, AlarmsInTheSecondSlowHourOfThree) {
  hours(100, 1);
  EXPECT_EQ(hour(1.1).state, State::kSuspicious);
  EXPECT_EQ(hour(1).state, State::kGood);
  EXPECT_EQ(judgement_.suspicious_hours, 1U);
  EXPECT_EQ(hour(1.1).state, State::kAlarm);
  EXPECT_EQ(judgement_.suspicious_hours, 2U);
  EXPECT_GT(judgement_.z, kAlarmZ);
  EXPECT_EQ(slow_since(hours_, judgement_), 490'100);
}

TEST_F(JudgeTest, NeedsMoreThanWhatIsTolerated) {
  for (const auto kind : {MetricKind::kSteady, MetricKind::kFirstCall, MetricKind::kCold}) {
    kind_ = kind;
    hours_.clear();
    hours(100, 1);
    EXPECT_EQ(hour(0.98 + tolerated(kind)).state, State::kGood);
    EXPECT_EQ(hour(1.02 + tolerated(kind)).state, State::kSuspicious);
  }
  EXPECT_EQ(tolerated(MetricKind::kSteady), 0.05);
  EXPECT_EQ(tolerated(MetricKind::kFirstCall), 0.10);
  EXPECT_EQ(tolerated(MetricKind::kCold), 0.25);
}

TEST_F(JudgeTest, AScatteredPastRaisesTheThreshold) {
  for (std::uint32_t i = 0; i < 100; ++i) hour(0.94 + 0.06 * (i % 3));
  EXPECT_NEAR(judgement_.spread, 1.4826 * 0.06, 0.01);
  EXPECT_EQ(hour(1.3).state, State::kGood);
  EXPECT_EQ(hour(1.5).state, State::kSuspicious);
}

TEST_F(JudgeTest, ALastingSlowdownNeverBecomesTheBaseline) {
  hours(200, 1);
  hours(2 * kBaselineHours, 1.2);
  EXPECT_EQ(judgement_.state, State::kAlarm);
  EXPECT_NEAR(judgement_.baseline, 1, 0.01);
  EXPECT_EQ(judgement_.clean_hours, kBaselineHours);
  EXPECT_EQ(slow_since(hours_, judgement_), 490'200);
  EXPECT_EQ(hour(1).state, State::kAlarm) << "two of the last three were slow";
  hour(1);
  EXPECT_EQ(hour(1).state, State::kGood);
  EXPECT_EQ(slow_since(hours_, judgement_), 0);
}

TEST_F(JudgeTest, AnImprovementIsNoAlarmAndBecomesTheBaseline) {
  hours(200, 1);
  hours(kBaselineHours, 0.8);
  EXPECT_EQ(judgement_.state, State::kGood);
  EXPECT_LT(judgement_.z, 0.5);
  EXPECT_EQ(hour(1).state, State::kSuspicious);
}

TEST_F(JudgeTest, HoursWithoutARunSayNothing) {
  hours(100, 1);
  next_ += 24 * 60;
  EXPECT_EQ(hour(1.1).state, State::kSuspicious);
  next_ += 24;
  EXPECT_EQ(hour(1.1).state, State::kAlarm);
}

TEST_F(JudgeTest, OneOutlierAmongSevenRepetitionsIsNotSeen) {
  hours(100, 1);
  for (int i = 0; i < 3; ++i) {
    hours_.push_back({.hour = next_++, .samples = {1, 1.001, 0.999, 5, 1, 9, 1.002}, .suspicious = false});
    EXPECT_EQ(judge(hours_, kind_).state, State::kGood);
  }
}

TEST_F(JudgeTest, OneSampleAnHourIsEnoughInTime) {
  kind_ = MetricKind::kCold;
  for (int i = 0; i < 200; ++i) hour(1, 1);
  int slow = 0;
  while (slow < 20 && hour(1.6, 1).state != State::kAlarm) ++slow;
  // Three samples cannot reach z = 3.09; seven can, of which five are slow.
  EXPECT_GE(slow, 4);
  EXPECT_LE(slow, 6);
}

TEST_F(JudgeTest, EqualTimesHaveNoSpreadAndStillAThreshold) {
  for (int i = 0; i < 60; ++i) hours_.push_back({.hour = next_++, .samples = {2, 2, 2}, .suspicious = false});
  const auto judgement = judge(hours_, kind_);
  EXPECT_EQ(judgement.state, State::kGood);
  EXPECT_DOUBLE_EQ(judgement.threshold, 2.1);
  EXPECT_EQ(judgement.spread, 0);
  EXPECT_EQ(judgement.z, 0);
}

TEST_F(JudgeTest, ReadsNoFurtherBackThanItMust) {
  hours(600, 1);
  hours(2, 1.2);
  const auto whole = judge(hours_, kind_);
  const auto tail = judge(std::span(hours_).last(kBaselineHours + 8 + 2), kind_);
  EXPECT_EQ(whole.state, State::kAlarm);
  EXPECT_EQ(tail.z, whole.z);
  EXPECT_EQ(tail.threshold, whole.threshold);
}

std::vector<std::pair<double, double>> pairs_of(std::size_t count, double ratio, std::mt19937_64& random) {
  std::lognormal_distribution<double> noise(0, 0.02), drift(0, 0.01);
  std::vector<std::pair<double, double>> pairs;
  double level = 1;
  for (std::size_t i = 0; i < count; ++i) {
    level *= drift(random);
    pairs.emplace_back(level * noise(random), level * ratio * noise(random));
  }
  return pairs;
}

TEST(Compare, FindsASlowerImageAndAcquitsAnEqualOne) {
  std::mt19937_64 random(1);
  const auto slower = compare(pairs_of(10, 1.15, random), MetricKind::kSteady, 1);
  EXPECT_EQ(slower.verdict, Comparison::Verdict::kSlower);
  EXPECT_GT(slower.low, 1.05);
  EXPECT_GE(slower.ratio, slower.low);
  EXPECT_LE(slower.ratio, slower.high);
  EXPECT_EQ(compare(pairs_of(10, 1, random), MetricKind::kSteady, 1).verdict, Comparison::Verdict::kNotSlower);
  EXPECT_EQ(compare(pairs_of(10, 1.05, random), MetricKind::kSteady, 1).verdict, Comparison::Verdict::kUndecided);
  EXPECT_EQ(compare(pairs_of(10, 1.15, random), MetricKind::kCold, 1).verdict, Comparison::Verdict::kNotSlower);
}

TEST(Compare, SaysNothingOnFewPairs) {
  std::mt19937_64 random(2);
  EXPECT_EQ(compare(pairs_of(kMinimumPairs - 1, 2, random), MetricKind::kSteady, 1).verdict,
            Comparison::Verdict::kUndecided);
  EXPECT_EQ(compare({}, MetricKind::kSteady, 1).ratio, 0);
}

TEST(Compare, IsTheSameForTheSameSeed) {
  std::mt19937_64 random(3);
  const auto pairs = pairs_of(10, 1.1, random);
  const auto one = compare(pairs, MetricKind::kSteady, 5), two = compare(pairs, MetricKind::kSteady, 5),
             other = compare(pairs, MetricKind::kSteady, 6);
  EXPECT_EQ(one.low, two.low);
  EXPECT_EQ(one.high, two.high);
  EXPECT_NEAR(one.low, other.low, 0.01);
}

// The interval should have the true ratio in it 95 times of 100. Medians of ten pairs are coarse: 90 to 99 are let
// pass.
TEST(Compare, IntervalsCoverTheTruthAsOftenAsTheySay) {
  std::mt19937_64 random(4);
  std::lognormal_distribution<double> noise(0, 0.03);
  int covered = 0;
  constexpr int kTrials = 300;
  for (int i = 0; i < kTrials; ++i) {
    std::vector<std::pair<double, double>> pairs;
    for (int n = 0; n < 10; ++n) pairs.emplace_back(noise(random), 1.1 * noise(random));
    const auto comparison = compare(pairs, MetricKind::kSteady, std::uint64_t(i));
    covered += comparison.low <= 1.1 && 1.1 <= comparison.high ? 1 : 0;
  }
  EXPECT_GE(covered, kTrials * 90 / 100);
  EXPECT_LE(covered, kTrials * 99 / 100);
  RecordProperty("covered", covered);
}

}  // namespace
}  // namespace varve::gpu
