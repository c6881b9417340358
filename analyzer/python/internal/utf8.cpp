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
  std::string out;
  append_utf8(code, out);
  return out;
}

}  // namespace varve::python
