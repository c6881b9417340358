#include "gpu/text.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>

#include "core/base/text/utf8.h"

namespace varve::gpu {
namespace {

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

TEST(Sparkline, StaysInBoundsForAnySeries) {
  for (const double value : {1e-300, 1e300, 5e-324}) {
    const auto line = sparkline(hours_of(std::vector<double>(2000, value)), kAlarm, {.width = 100'000});
    EXPECT_LE(line.size(), 500U * 3);
    EXPECT_TRUE(is_utf8(line));
  }
  EXPECT_FALSE(sparkline(hours_of({1}), {}, {.width = 0}).empty());
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
