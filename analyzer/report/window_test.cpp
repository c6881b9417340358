#include "analyzer/report/window.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::report {
namespace {

constexpr std::int32_t kWindowToday = 20'778;  // 2026-11-21

TEST(Window, CountsBackFromTodayWithTodayInIt) {
  struct Case {
    const char* text;
    std::int32_t first;
  };
  for (const auto& [text, first] :
       {Case{"1d", kWindowToday}, Case{"90d", kWindowToday - 89}, Case{"2w", kWindowToday - 13},
        Case{"1y", kWindowToday - 364}, Case{"2y", kWindowToday - 729}}) {
    const auto window = parse_window(text, kWindowToday);
    EXPECT_EQ(window.first, first) << text;
    EXPECT_EQ(window.last, kWindowToday) << text;
  }
}

TEST(Window, TakesTwoDaysBothIncluded) {
  const auto window = parse_window("2026-01-01..2026-11-21", kWindowToday);
  EXPECT_EQ(window.first, 20'454);
  EXPECT_EQ(window.last, kWindowToday);
  EXPECT_EQ(parse_window("2024-02-29..2024-02-29", kWindowToday).first, 19'782);
}

TEST(Window, RefusesWhatIsNoTime) {
  for (const auto* text : {"", "d", "90", "0d", "-5d", "90m", "9 d", "4294967297d", "200y", "99999999999999999999d",
                           "2026-02-29..2026-03-01", "2026-1-1..2026-03-01", "2026-03-02..2026-03-01", "..",
                           "2026-01-01..", "0001-01-01..2026-01-01", "2026-01-01...2026-02-01"})
    EXPECT_THROW(parse_window(text, kWindowToday), UsageError) << text;
}

}  // namespace
}  // namespace varve::report
