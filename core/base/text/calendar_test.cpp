#include "core/base/text/calendar.h"

#include <gtest/gtest.h>

#include <limits>

namespace varve {
namespace {

TEST(Calendar, KnowsDaysAndMonths) {
  EXPECT_EQ(parse_day("1970-01-01"), 0);
  EXPECT_EQ(parse_day("2024-02-29"), 19'782);
  EXPECT_EQ(day_text(19'782), "2024-02-29");
  for (const auto* bad : {"2023-02-29", "1969-12-31", "2024-2-29", "2024-13-01", "2024-00-01", "2024-01-32", "20240229",
                          "2024-02-2a", ""})
    EXPECT_FALSE(parse_day(bad).has_value()) << bad;
  for (std::int32_t day = 0; day < 40'000; day += 13) {
    EXPECT_EQ(parse_day(day_text(day)), day);
    EXPECT_LE(first_day_of_month(month_of(day)), day);
    EXPECT_GE(last_day_of_month(month_of(day)), day);
  }
  EXPECT_EQ(month_of(parse_day("2024-12-31").value()) + 1, month_of(parse_day("2025-01-01").value()));
}

TEST(Calendar, NamesEachDayOfFourDigitYears) {
  EXPECT_EQ(day_text(0), "1970-01-01");
  EXPECT_EQ(day_text(-1), "1969-12-31");
  EXPECT_EQ(day_text(20'778), "2026-11-21");
  EXPECT_EQ(day_text(-719'528), "0000-01-01");
  EXPECT_EQ(day_text(2'932'896), "9999-12-31");
  EXPECT_EQ(day_text(-719'529), "");
  EXPECT_EQ(day_text(std::numeric_limits<std::int32_t>::max()), "");
}

TEST(Calendar, WritesPointsInTime) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(rfc3339(-1), "1969-12-31T23:59:59Z");
  EXPECT_EQ(rfc3339(1'795'284'000, 500'000'000), "2026-11-21T18:00:00.5Z");
  EXPECT_EQ(rfc3339(253'402'300'799, 1), "9999-12-31T23:59:59.000000001Z");
}

TEST(Calendar, TimesAreReadAsTheyAreWritten) {
  for (const std::int64_t seconds : {0ll, 86'399ll, 1'732'212'345ll, 253'402'300'799ll})
    EXPECT_EQ(parse_rfc3339(rfc3339(seconds)), seconds);
  EXPECT_EQ(parse_rfc3339(rfc3339(5, 999'999'999)), 5);
  EXPECT_EQ(parse_rfc3339("2024-01-02T03:04:05+02:00"), parse_rfc3339("2024-01-02T01:04:05Z"));
  EXPECT_EQ(parse_rfc3339("2024-01-02T01:04:05.25-00:30"), parse_rfc3339("2024-01-02T01:34:05Z"));
  for (const auto* text :
       {"", "2024-01-02", "2024-01-02T03:04:05", "2024-01-02 03:04:05Z", "0001-01-01T00:00:00Z", "2024-01-02T24:00:00Z",
        "2024-01-02T03:60:00Z", "2024-01-02T03:04:7aZ", "2024-13-02T03:04:05Z", "2024-01-02T03:04:05.Z",
        "2024-01-02T03:04:05.5", "2024-01-02T03:04:05+2:00", "2024-01-02T03:04:05Zx"})
    EXPECT_EQ(parse_rfc3339(text), std::nullopt) << text;
}

}  // namespace
}  // namespace varve
