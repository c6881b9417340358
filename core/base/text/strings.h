#pragma once
// Small tools for text. Locale-free, total over any bytes.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

// Without these characters at both ends.
inline std::string_view trimmed(std::string_view text, std::string_view characters = " \t\r\n") {
  const auto begin = text.find_first_not_of(characters);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(characters) - begin + 1);
}

// What stands between separators, each character of which is one: at least one part, empty ones too.
inline std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The parts that are not empty.
inline std::vector<std::string_view> split_words(std::string_view text, std::string_view separators) {
  auto parts = split(text, separators);
  std::erase_if(parts, [](std::string_view part) { return part.empty(); });
  return parts;
}

inline std::string joined(const std::vector<std::string>& parts, std::string_view between = ", ") {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text.append(i == 0 ? "" : between).append(parts[i]);
  return text;
}

// ASCII; other bytes stay as they are.
inline char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }
inline std::string to_lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

// The value of 0 to 9 and a to f; -1 of anything else. Who takes capitals too asks for lower(c).
inline int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

// The last line of what a program said that is not blank: mostly why it failed.
inline std::string_view last_line(std::string_view text) {
  text = trimmed(text);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace varve
