#include "analyzer/python/internal/utf8.h"

#include <algorithm>

#include "core/base/utf8.h"

namespace varve::python {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string repair_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const auto size = utf8_length(text);
    out += size > 0 ? text.substr(0, size) : kReplacement;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string encode_utf8(char32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return std::string(kReplacement);
  if (code < 0x80) return {char(code)};
  const auto tail = [&](int shift) { return char(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x800) return {char(0xC0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {char(0xE0 | (code >> 12)), tail(6), tail(0)};
  return {char(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

}  // namespace varve::python
