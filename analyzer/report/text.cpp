#include "analyzer/report/text.h"

#include <fmt/format.h>

#include <vector>

#include "core/base/calendar.h"
#include "core/base/utf8.h"

namespace varve::report {
namespace {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  // 0: no well-formed character stands here
};

Character read_character(std::string_view text) {
  const auto length = utf8_length(text);
  const auto first = static_cast<unsigned char>(text[0]);
  if (length <= 1) return {first, length};
  char32_t code = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  return {code, length};
}

// What a reader would not see, or what would make him see something else.
bool is_hidden(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0xAD || code == 0x61C || code == 0x180E ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFB) ||
         (code >= 0xE0000 && code <= 0xE0FFF);
}

}  // namespace

std::string visible(std::string_view text, std::size_t limit) {
  std::vector<std::string> pieces;  // one character each
  bool too_long = false;
  const auto keep = limit + 1;
  // Of a huge name only the ends are read: the middle would be dropped anyway.
  std::string_view rest = text;
  std::string_view tail;
  if (text.size() > 16 * keep) {
    rest = text.substr(0, 8 * keep);
    tail = text.substr(text.size() - 8 * keep);
    while (!tail.empty() && (static_cast<unsigned char>(tail.front()) & 0xC0) == 0x80) tail.remove_prefix(1);
    too_long = true;
  }
  const auto read = [&pieces](std::string_view part) {
    while (!part.empty()) {
      const auto character = read_character(part);
      if (character.bytes == 0) {
        pieces.emplace_back("\uFFFD");
      } else if (is_hidden(character.code)) {
        pieces.push_back(fmt::format("[U+{:04X}]", std::uint32_t(character.code)));
      } else {
        pieces.emplace_back(part.substr(0, character.bytes));
      }
      part.remove_prefix(character.bytes == 0 ? 1 : character.bytes);
    }
  };
  read(rest);
  read(tail);
  too_long = too_long || pieces.size() > limit;
  std::string result;
  const auto head_count = too_long ? limit - limit / 3 : pieces.size();
  const auto tail_from = too_long ? pieces.size() - limit / 3 + 1 : pieces.size();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i < head_count || i >= tail_from) result += pieces[i];
    if (too_long && i == head_count) result += "…";
  }
  return result;
}

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
