#include "analyzer/python/internal/utf8.h"

#include <cstdint>

namespace varve::python {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  std::size_t size;                // of the whole sequence; 0 = cannot begin one
  std::uint8_t second_low, second_high;  // bounds of the second byte: they exclude surrogates, overlong forms and what lies above U+10FFFF
};

Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = lead_of(std::uint8_t(text[i]));
    std::size_t good = 1;
    while (good < lead.size && i + good < text.size()) {
      const auto byte = std::uint8_t(text[i + good]);
      const auto low = good == 1 ? lead.second_low : 0x80;
      const auto high = good == 1 ? lead.second_high : 0xBF;
      if (byte < low || byte > high) break;
      ++good;
    }
    out += lead.size == good ? text.substr(i, good) : kReplacement;
    i += good;
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
