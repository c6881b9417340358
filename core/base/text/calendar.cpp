#include "core/base/text/calendar.h"

#include <fmt/format.h>

#include <charconv>

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

std::optional<std::int64_t> parse_rfc3339(std::string_view text) {
  constexpr std::size_t kSecondsEnd = 19;  // of "2026-11-21T18:00:00"
  if (text.size() <= kSecondsEnd || (text[10] != 'T' && text[10] != 't')) return std::nullopt;
  const auto day = parse_day(text.substr(0, 10));
  // "18:00", or nothing.
  const auto minutes_of = [](std::string_view clock) -> std::optional<int> {
    if (clock.size() != 5 || clock[2] != ':') return std::nullopt;
    for (const auto at : {0, 1, 3, 4})
      if (clock[std::size_t(at)] < '0' || clock[std::size_t(at)] > '9') return std::nullopt;
    const int hours = (clock[0] - '0') * 10 + (clock[1] - '0'), minutes = (clock[3] - '0') * 10 + (clock[4] - '0');
    if (hours > 23 || minutes > 59) return std::nullopt;
    return hours * 60 + minutes;
  };
  const auto minutes = minutes_of(text.substr(11, 5));
  const auto seconds = text.substr(16, 3);
  if (!day || !minutes || seconds[0] != ':' || seconds[1] < '0' || seconds[1] > '6' || seconds[2] < '0' ||
      seconds[2] > '9')
    return std::nullopt;
  auto rest = text.substr(kSecondsEnd);
  if (rest.starts_with('.')) {
    const auto end = rest.find_first_not_of("0123456789", 1);
    if (end == 1 || end == rest.npos) return std::nullopt;
    rest.remove_prefix(end);
  }
  std::int64_t offset = 0;
  if (rest != "Z" && rest != "z") {
    if (rest.empty() || (rest[0] != '+' && rest[0] != '-')) return std::nullopt;
    const auto away = minutes_of(rest.substr(1));
    if (!away) return std::nullopt;
    offset = (rest[0] == '+' ? 60 : -60) * std::int64_t(*away);
  }
  return *day * std::int64_t(86'400) + *minutes * 60 + (seconds[1] - '0') * 10 + (seconds[2] - '0') - offset;
}

std::optional<std::int64_t> parse_unix_seconds(std::string_view text) {
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 || seconds > kLastSecond)
    return std::nullopt;
  return seconds;
}

}  // namespace varve
