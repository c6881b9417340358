#include "analyzer/report/window.h"

#include <charconv>

#include "core/base/errors.h"
#include "core/base/text/calendar.h"

namespace varve::report {
namespace {

constexpr std::int32_t kMaxDays = 36'525;  // a century

bool read_number(std::string_view text, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::int32_t read_day(std::string_view text) {
  if (const auto day = parse_day(text)) return *day;
  fail<UsageError>("window: \"{}\" is not a day like 2026-11-21", text);
}

}  // namespace

usage::DayRange parse_window(std::string_view text, std::int32_t today) {
  if (const auto dots = text.find(".."); dots != std::string_view::npos) {
    const usage::DayRange window{.first = read_day(text.substr(0, dots)), .last = read_day(text.substr(dots + 2))};
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

}  // namespace varve::report
