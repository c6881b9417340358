#include "analyzer/report/window.h"

#include <charconv>
#include <chrono>

#include "core/base/errors.h"

namespace varve::report {
namespace {

constexpr std::int32_t kMaxDays = 36'525;  // a century

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() && text[0] != '-';
}

// "2026-11-21"; refuses days that no calendar has.
std::int32_t parse_day(std::string_view text) {
  int year = 0;
  unsigned month = 0, day = 0;
  if (text.size() == 10 && text[4] == '-' && text[7] == '-' && read_number(text.substr(0, 4), year) &&
      read_number(text.substr(5, 2), month) && read_number(text.substr(8, 2), day)) {
    const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
    if (date.ok()) return std::int32_t(std::chrono::sys_days(date).time_since_epoch().count());
  }
  fail<UsageError>("window: \"{}\" is not a day like 2026-11-21", text);
}

}  // namespace

usage::DayRange parse_window(std::string_view text, std::int32_t today) {
  if (const auto dots = text.find(".."); dots != std::string_view::npos) {
    const usage::DayRange window{.first = parse_day(text.substr(0, dots)), .last = parse_day(text.substr(dots + 2))};
    if (window.last < window.first) fail<UsageError>("window: \"{}\" ends before it begins", text);
    if (window.last - window.first >= kMaxDays) fail<UsageError>("window: \"{}\" is longer than a century", text);
    return window;
  }
  const auto unit = text.empty() ? '\0' : text.back();
  const std::int32_t days = unit == 'd' ? 1 : unit == 'w' ? 7 : unit == 'y' ? 365 : 0;
  std::uint32_t count = 0;
  if (days == 0 || !read_number(text.substr(0, text.size() - 1), count) || count == 0 ||
      count > std::uint32_t(kMaxDays / days))
    fail<UsageError>("window: \"{}\" is neither a time like 90d, 12w, 2y nor two days like 2026-01-01..2026-06-30",
                     text);
  return {.first = today - std::int32_t(count) * days + 1, .last = today};
}

std::int32_t today() {
  return std::int32_t(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch().count());
}

}  // namespace varve::report
