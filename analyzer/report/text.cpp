#include "analyzer/report/text.h"

#include <fmt/format.h>

#include "core/base/text/calendar.h"

namespace varve::report {
std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

std::string cut(std::string_view text, std::size_t limit) {
  if (characters(text) <= limit) return std::string(text);
  std::size_t count = 0, end = 0;
  while (end < text.size()) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && ++count == limit) break;
    ++end;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string last_seen_text(std::int32_t day) { return day == 0 ? "" : day_text(day); }

std::string number_text(std::uint64_t number) {
  auto text = std::to_string(number);
  for (auto at = std::ptrdiff_t(text.size()) - 3; at > 0; at -= 3) text.insert(std::size_t(at), 1, ',');
  return text;
}

std::string short_number(std::uint64_t number) {
  if (number < 10'000) return number_text(number);
  auto value = double(number) / 1000;
  for (const char unit : {'k', 'M', 'G'}) {
    if (value < 99.95) return fmt::format("{:.1f}{}", value, unit);
    if (value < 999.5) return fmt::format("{:.0f}{}", value, unit);
    value /= 1000;
  }
  return "many";
}

std::string percent_text(double share) {
  const double percent = share * 100;
  if (percent <= 0) return "0 %";
  if (percent < 0.01) return "< 0.01 %";
  if (percent < 0.095) return fmt::format("{:.2f} %", percent);
  if (percent < 9.95) return fmt::format("{:.1f} %", percent);
  if (percent < 100 && percent >= 99.5)
    return fmt::format("{:.1f} %", percent < 99.95 ? percent : 99.9);  // not all is not 100 %
  return fmt::format("{:.0f} %", percent);
}

std::string hours_text(std::uint64_t seconds) {
  const double hours = double(seconds) / 3600;
  if (seconds == 0) return "0 h";
  if (hours < 0.05) return "< 0.1 h";
  return hours < 9.95 ? fmt::format("{:.1f} h", hours) : fmt::format("{} h", number_text(std::uint64_t(hours + 0.5)));
}

std::string count_text(std::uint64_t number, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", number_text(number), number == 1 ? one : many);
}

std::string trend_text(std::optional<double> trend) {
  if (!trend) return "";
  if (*trend >= 99.5) return "× 100 +";
  return fmt::format("× {:.{}f}", *trend, *trend < 0.095 ? 2 : *trend < 9.95 ? 1 : 0);
}

}  // namespace varve::report
