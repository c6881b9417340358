#pragma once
// Characters of source text, as all our readers see them, and places in it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/text/strings.h"

namespace varve::notebooks {

// Bytes beyond ASCII are letters: identifiers may be of any script, and nothing is decoded.
constexpr bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (c & 0x80) != 0;
}
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\f' || c == '\0'; }
constexpr bool is_newline(char c) { return c == '\n' || c == '\r'; }

// Spaces that editors and web pages leave in code (no-break, ideographic, zero width, byte order mark): Python refuses
// them. Returns their length in UTF-8, 0 if there is none at `at`.
std::size_t foreign_space(const char* at, const char* end);

inline const char* skip_blanks(const char* at, const char* end) {
  while (at != end && is_blank(*at)) ++at;
  return at;
}
// Past "\n", "\r\n" or "\r", whichever stands at `at`.
inline const char* skip_newline(const char* at, const char* end) {
  if (at == end) return at;
  if (*at == '\r' && at + 1 != end && at[1] == '\n') return at + 2;
  return at + 1;
}
// The newline at or after `at`, or `end`.
const char* find_newline(const char* at, const char* end);
// The end of the line and of those it goes on to by a backslash at its end.
const char* find_line_end(const char* at, const char* end);
// The identifier at `at`; empty if there is none. Stops at foreign spaces.
std::string_view word_at(const char* at, const char* end);
// The dotted name that ends at `end`, as in `os.path.join(`; spaces are not looked through.
std::string_view dotted_word_before(const char* begin, const char* end);
std::string_view trimmed(std::string_view text);
bool starts_with_word(std::string_view text, std::string_view word);  // and no letter follows

inline std::string_view between(const char* from, const char* to) {
  return {from, static_cast<std::size_t>(to - from)};
}

// Counts lines as somebody asks for them, so that nobody has to while reading. Cheap if asked in order.
class LineCounter {
 public:
  explicit LineCounter(std::string_view text)
      : begin_(text.data()), at_(text.data()), end_(text.data() + text.size()) {}
  // 1-based line of a place in the text. "\r\n" is one newline, and so is "\r".
  std::uint32_t line_of(const char* place);

 private:
  const char* begin_;
  const char* at_;
  const char* end_;
  std::uint32_t line_ = 1;
};

}  // namespace varve::notebooks
