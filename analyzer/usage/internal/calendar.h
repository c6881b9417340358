#pragma once
// Days since 1970-01-01 (UTC) and the months they lie in; proleptic Gregorian, as ISO 8601 writes them.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace varve::usage {

// "2026-11-21", years 1970 to 9999. Absent when it is no such day.
inline std::optional<std::int32_t> parse_day(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  int part[3] = {0, 0, 0};
  for (std::size_t i = 0, which = 0; i < text.size(); ++i) {
    if (i == 4 || i == 7) {
      ++which;
      continue;
    }
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    part[which] = part[which] * 10 + (text[i] - '0');
  }
  const std::chrono::year_month_day date{std::chrono::year(part[0]), std::chrono::month(unsigned(part[1])),
                                         std::chrono::day(unsigned(part[2]))};
  if (!date.ok() || part[0] < 1970) return std::nullopt;
  return std::int32_t(std::chrono::sys_days(date).time_since_epoch().count());
}

inline std::chrono::year_month_day date_of(std::int32_t day) { return std::chrono::sys_days(std::chrono::days(day)); }

inline std::string day_text(std::int32_t day) {
  const auto date = date_of(day);
  return fmt::format("{:04}-{:02}-{:02}", int(date.year()), unsigned(date.month()), unsigned(date.day()));
}

// Months since January 1970.
inline std::int32_t month_of(std::int32_t day) {
  const auto date = date_of(day);
  return (int(date.year()) - 1970) * 12 + std::int32_t(unsigned(date.month())) - 1;
}

inline std::int32_t first_day_of_month(std::int32_t month) {
  const std::chrono::year_month_day date{std::chrono::year(1970 + month / 12),
                                         std::chrono::month(unsigned(month % 12) + 1), std::chrono::day(1)};
  return std::int32_t(std::chrono::sys_days(date).time_since_epoch().count());
}

inline std::int32_t last_day_of_month(std::int32_t month) { return first_day_of_month(month + 1) - 1; }

inline std::int32_t today_utc() {
  return std::int32_t(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch().count());
}

}  // namespace varve::usage
