#pragma once
// Days and points in time in UTC, as ISO 8601 and RFC 3339 write them. A day is its number since 1970-01-01; proleptic
// Gregorian.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace varve {

std::int32_t day_of(std::chrono::system_clock::time_point time);
std::int32_t today_utc();

// "2026-11-21", years 1970 to 9999. Absent when it is no such day.
std::optional<std::int32_t> parse_day(std::string_view text);
// "2026-11-21"; "" for a day outside of the years 0 to 9999.
std::string day_text(std::int32_t day);

// Months since January 1970.
std::int32_t month_of(std::int32_t day);
std::int32_t first_day_of_month(std::int32_t month);
inline std::int32_t last_day_of_month(std::int32_t month) { return first_day_of_month(month + 1) - 1; }

inline constexpr std::int64_t kLastSecond = 253'402'300'799;  // of the year 9999, since 1970

// Decimal seconds since 1970, up to kLastSecond. Absent for anything else.
std::optional<std::int64_t> parse_unix_seconds(std::string_view text);

// RFC 3339 in UTC, with as many decimals as needed (as Go writes times): "2026-11-21T18:00:00.5Z". `seconds` since
// 1970, years 0 to 9999.
std::string rfc3339(std::int64_t seconds, std::uint32_t nanoseconds = 0);
// And back, at any offset from UTC and rounded down to seconds. Absent when it is no such time, or before 1970.
std::optional<std::int64_t> parse_rfc3339(std::string_view text);

}  // namespace varve
