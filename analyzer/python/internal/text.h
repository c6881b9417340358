#pragma once
// Small tools for ASCII grammars. Locale-free, total over any bytes.
#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/text/strings.h"
#include "core/base/text/utf8.h"

namespace varve::python {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline bool is_alnum(char c) { return is_digit(c) || is_letter(c); }
inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

inline std::string_view trim_left(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}
inline std::string_view trim_right(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}
inline std::string_view trim(std::string_view text) { return trim_left(trim_right(text)); }

inline bool all_digits(std::string_view text) { return !text.empty() && std::ranges::all_of(text, is_digit); }

// Takes the first line off `text`, without its end ("\n", "\r\n" or a lone "\r"). Call while text is not empty.
inline std::string_view take_line(std::string_view& text) {
  const auto end = text.find_first_of("\r\n");
  const auto line = text.substr(0, end);
  if (end == std::string_view::npos) {
    text = {};
  } else {
    text.remove_prefix(end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  return line;
}

// Takes what stands before `separator` off `text`, and the separator; all of it where there is none.
inline std::string_view take_until(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return part;
}

inline std::string_view without_bom(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

}  // namespace varve::python
