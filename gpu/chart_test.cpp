#include "gpu/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "core/base/utf8.h"

namespace varve::gpu {
namespace {

using testing::ElementsAre;

std::vector<Hour> hours_of(const std::vector<double>& medians) {
  std::vector<Hour> hours;
  for (const auto value : medians)
    hours.push_back({.hour = 490'000 + std::int64_t(hours.size()),
                     .samples = {value * 0.99, value, value * 1.01},
                     .suspicious = value > 1.05e-3});
  return hours;
}

const Judgement kAlarm{.state = Judgement::State::kAlarm,
                       .median = 1.2e-3,
                       .baseline = 1e-3,
                       .spread = 0,
                       .threshold = 1.05e-3,
                       .z = 4,
                       .suspicious_hours = 2,
                       .clean_hours = 50};

TEST(Sparkline, ShowsHeightsBetweenTheLowestHourAndTheHighest) {
  const auto hours = hours_of({1e-3, 1e-3, 1.1e-3, 1.2e-3});
  EXPECT_EQ(sparkline(hours, kAlarm), "▁▁▅█");
  EXPECT_EQ(sparkline(hours, kAlarm, {.utf8 = false}), "__=#");
  EXPECT_EQ(sparkline(hours, kAlarm, {.width = 2}), "▅█");
  EXPECT_EQ(sparkline({}, kAlarm), "");
}

TEST(Sparkline, IsFlatWhereAllHoursAreAlike) {
  EXPECT_EQ(sparkline(hours_of({1e-3, 1e-3}), {}, {.utf8 = false}), "__");
}

TEST(Chart, DrawsMediansBaselineAndThresholdAndMarksSlowHours) {
  const auto lines =
      chart(hours_of({1e-3, 1e-3, 0.99e-3, 1.2e-3, 1.2e-3}), kAlarm, {.width = 60, .height = 5, .utf8 = false});
  EXPECT_THAT(lines, ElementsAre("  1.20 ms |   oo", "          |     ", "          |     ",
                                 "          |===== threshold 1.05 ms", "   990 us |ooo-- baseline 1.00 ms",
                                 "              ^^ slow", "           2025-11-24 16:00 UTC to 2025-11-24 20:00 UTC"));
}

TEST(Chart, SpansTheMiddleHalfOfTheSamples) {
  const std::vector<Hour> hours{{.hour = 1, .samples = {1, 2, 3, 4, 5}, .suspicious = false},
                                {.hour = 2, .samples = {1}, .suspicious = false},
                                {.hour = 3, .samples = {5}, .suspicious = false}};
  const auto lines = chart(hours, {}, {.width = 10, .height = 5, .utf8 = false});
  EXPECT_THAT(lines, ElementsAre("   5.00 s |  o", "          ||  ", "          |o  ", "          ||  ",
                                 "   1.00 s | o ", "           1970-01-01 01:00 UTC to 1970-01-01 03:00 UTC"));
}

TEST(Chart, StaysInBoundsForAnySeries) {
  for (const double value : {1e-300, 1e300, 5e-324}) {
    const auto lines =
        chart(hours_of(std::vector<double>(2000, value)), kAlarm, {.width = 100'000, .height = 100'000, .utf8 = true});
    EXPECT_LE(lines.size(), 52U);
    for (const auto& line : lines) EXPECT_TRUE(is_utf8(line));
  }
  EXPECT_TRUE(chart({}, kAlarm).empty());
  EXPECT_FALSE(chart(hours_of({1}), {}, {.width = 0, .height = 0}).empty());
}

TEST(TimeText, HasThreeDigits) {
  EXPECT_EQ(time_text(83.12), "83.1 s");
  EXPECT_EQ(time_text(0.00712), "7.12 ms");
  EXPECT_EQ(time_text(0.9996), "1.00 s");
  EXPECT_EQ(time_text(999.4e-6), "999 us");
  EXPECT_EQ(time_text(5e-9), "5.00 ns");
  EXPECT_EQ(time_text(2.5e-13), "0.25 ps");
  EXPECT_EQ(time_text(0), "0.00 ps");
}

class Locale : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < before_.size(); ++i)
      before_[i] ? ::setenv(kNames[i], before_[i]->c_str(), 1) : ::unsetenv(kNames[i]);
  }
  static constexpr std::array<const char*, 3> kNames{"LC_ALL", "LC_CTYPE", "LANG"};
  std::vector<std::optional<std::string>> before_;
};

TEST_F(Locale, IsUtf8WhereTheFirstSettingSaysSo) {
  EXPECT_FALSE(locale_is_utf8());
  ::setenv("LANG", "de_AT.utf8", 1);
  EXPECT_TRUE(locale_is_utf8());
  ::setenv("LC_CTYPE", "C", 1);
  EXPECT_FALSE(locale_is_utf8());
  ::setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_TRUE(locale_is_utf8());
  ::setenv("LC_ALL", "", 1);
  EXPECT_FALSE(locale_is_utf8());
}

}  // namespace
}  // namespace varve::gpu
