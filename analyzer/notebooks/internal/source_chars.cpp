#include "analyzer/notebooks/internal/source_chars.h"

#include <algorithm>
#include <cstring>

namespace varve::notebooks {

std::size_t foreign_space(const char* at, const char* end) {
  const auto left = end - at;
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  if (left >= 2 && byte(0) == 0xC2 && byte(1) == 0xA0) return 2;
  if (left < 3) return 0;
  if (byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) <= 0x8B || byte(2) == 0xAF)) return 3;  // U+2000 to U+200B, U+202F
  if (byte(0) == 0xE3 && byte(1) == 0x80 && byte(2) == 0x80) return 3;
  if (byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF) return 3;
  return 0;
}

// Looks for both in windows that grow: a text without any "\n" must not be searched to its end for each "\r".
const char* find_newline(const char* at, const char* end) {
  std::size_t window = 64;
  while (at != end) {
    const auto size = std::min(window, static_cast<std::size_t>(end - at));
    const auto* feed = static_cast<const char*>(std::memchr(at, '\n', size));
    const auto before = feed ? static_cast<std::size_t>(feed - at) : size;
    const auto* bare = before == 0 ? nullptr : static_cast<const char*>(std::memchr(at, '\r', before));
    if (bare) return bare;
    if (feed) return feed;
    at += size;
    window *= 2;
  }
  return end;
}

const char* find_line_end(const char* at, const char* end) {
  while (true) {
    const char* stop = find_newline(at, end);
    if (stop == end || stop == at || stop[-1] != '\\') return stop;
    at = skip_newline(stop, end);
  }
}

std::string_view word_at(const char* at, const char* end) {
  const char* stop = at;
  while (stop != end && is_word(*stop)) {
    if ((*stop & 0x80) != 0 && foreign_space(stop, end) != 0) break;
    ++stop;
  }
  return between(at, stop);
}

std::string_view dotted_word_before(const char* begin, const char* end) {
  const char* start = end;
  while (start != begin && (is_word(start[-1]) || start[-1] == '.')) --start;
  return between(start, end);
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return is_blank(c) || is_newline(c); };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.starts_with(word) && (text.size() == word.size() || !is_word(text[word.size()]));
}

namespace {

std::uint32_t count_newlines(const char* from, const char* to) {
  std::uint32_t count = 0;
  while (true) {
    from = find_newline(from, to);
    if (from == to) return count;
    from = skip_newline(from, to);
    ++count;
  }
}

}  // namespace

std::uint32_t LineCounter::line_of(const char* place) {
  if (place != begin_ && place != end_ && *place == '\n' && place[-1] == '\r') --place;
  if (place >= at_) {
    line_ += count_newlines(at_, place);
  } else {
    line_ -= count_newlines(place, at_);
  }
  at_ = place;
  return line_;
}

}  // namespace varve::notebooks
