#pragma once
// How the report writes numbers, days and names from images, notebooks and sessions, which may hold anything.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace varve::report {

// Characters (code points) of valid UTF-8; what is cut off at `limit` ends in "…".
std::size_t characters(std::string_view text);
std::string cut(std::string_view text, std::size_t limit);

std::string last_seen_text(std::int32_t day);    // "2026-11-21"; "" for 0, which stands for never
std::string number_text(std::uint64_t number);   // "12,345"
std::string short_number(std::uint64_t number);  // at most five characters: "9,999", "12.3k", "123k", "1.2M"
std::string percent_text(double share);          // "62 %", "0.4 %", "< 0.01 %"
std::string hours_text(std::uint64_t seconds);   // "1,234 h", "0.4 h"
std::string count_text(std::uint64_t number, std::string_view one,
                       std::string_view many);        // "1 session", "12 sessions"
std::string trend_text(std::optional<double> trend);  // "x 1.4"; "" if absent

}  // namespace varve::report
