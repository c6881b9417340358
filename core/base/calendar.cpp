#include "core/base/calendar.h"

#include <fmt/format.h>

namespace varve {
namespace {

using std::chrono::days;
using std::chrono::sys_days;
using std::chrono::year_month_day;

constexpr std::int32_t kFirstDay = -719'528;  // 0000-01-01
constexpr std::int32_t kLastDay = 2'932'896;  // 9999-12-31

year_month_day date_of(std::int32_t day) { return sys_days(days(day)); }

std::int32_t number_of(const year_month_day& date) { return std::int32_t(sys_days(date).time_since_epoch().count()); }

}  // namespace

std::int32_t day_of(std::chrono::system_clock::time_point time) {
  return std::int32_t(std::chrono::floor<days>(time).time_since_epoch().count());
}

std::int32_t today_utc() { return day_of(std::chrono::system_clock::now()); }

std::optional<std::int32_t> parse_day(std::string_view text) {
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
  const year_month_day date{std::chrono::year(part[0]), std::chrono::month(unsigned(part[1])),
                            std::chrono::day(unsigned(part[2]))};
  if (!date.ok() || part[0] < 1970) return std::nullopt;
  return number_of(date);
}

std::string day_text(std::int32_t day) {
  if (day < kFirstDay || day > kLastDay) return "";
  const auto date = date_of(day);
  return fmt::format("{:04}-{:02}-{:02}", int(date.year()), unsigned(date.month()), unsigned(date.day()));
}

std::int32_t month_of(std::int32_t day) {
  const auto date = date_of(day);
  return (int(date.year()) - 1970) * 12 + std::int32_t(unsigned(date.month())) - 1;
}

std::int32_t first_day_of_month(std::int32_t month) {
  return number_of(
      {std::chrono::year(1970 + month / 12), std::chrono::month(unsigned(month % 12) + 1), std::chrono::day(1)});
}

std::string rfc3339(std::int64_t seconds, std::uint32_t nanoseconds) {
  const std::chrono::sys_seconds time{std::chrono::seconds(seconds)};
  const auto day = std::chrono::floor<days>(time);
  const auto second = (time - day).count();
  auto text = fmt::format("{}T{:02}:{:02}:{:02}", day_text(std::int32_t(day.time_since_epoch().count())), second / 3600,
                          second / 60 % 60, second % 60);
  if (nanoseconds != 0) {
    text += fmt::format(".{:09}", nanoseconds);
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text + "Z";
}

}  // namespace varve
