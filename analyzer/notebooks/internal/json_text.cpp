#include "analyzer/notebooks/internal/json_text.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <simdjson.h>

#include "analyzer/notebooks/internal/json_bytes.h"
#include "analyzer/notebooks/internal/value_skipper.h"
#include "core/base/utf8.h"

namespace varve::notebooks {
namespace {

constexpr std::uint32_t kReplacement = 0xfffd;

std::optional<std::uint32_t> four_hex(const char* p, const char* end) {
  if (end - p < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = p[i];
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                               : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | std::uint32_t(digit);
  }
  return value;
}

// `p` stands behind "\u". Returns where reading goes on; nullptr if no four hex digits are there.
const char* append_unicode_escape(const char* p, const char* end, std::string& out) {
  const auto first = four_hex(p, end);
  if (!first) return nullptr;
  p += 4;
  if (*first < 0xd800 || *first > 0xdfff) {
    append_utf8(*first, out);
    return p;
  }
  if (*first < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
    if (const auto second = four_hex(p + 2, end); second && *second >= 0xdc00 && *second <= 0xdfff) {
      append_utf8(0x10000 + ((*first - 0xd800) << 10) + (*second - 0xdc00), out);
      return p + 6;
    }
  }
  append_utf8(kReplacement, out);
  return p;
}

// The character that a one-letter escape stands for; 0 if JSON has no such escape.
char plain_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

}  // namespace

bool append_json_string(std::string_view literal, std::string& out) {
  bool good = true;
  const char* p = literal.data() + 1;
  const char* const end = literal.data() + literal.size() - 1;
  while (p < end) {
    const char* const stop = find_string_stop(p, end);
    out.append(p, stop);
    if (end - stop < 2) break;  // a backslash that escapes the closing quote cannot be: the literal ends there
    p = stop + 2;
    if (stop[1] == 'u') {
      if (const char* next = append_unicode_escape(p, end, out)) {
        p = next;
        continue;
      }
    } else if (const char c = plain_escape(stop[1]); c != 0) {
      out += c;
      continue;
    }
    out += stop[1];
    good = false;
  }
  return good;
}

bool append_json_lines(std::string_view value, bool old_lines, std::string& out) {
  if (value.empty()) return false;
  if (value.front() == '"') return append_json_string(value, out);
  if (value.front() != '[') return value == "null";
  bool good = true;
  bool first = true;
  bool add_line_ends = false;
  ValueSkipper skipper;
  const char* p = value.data() + 1;
  const char* const end = value.data() + value.size() - 1;
  while (p < end) {
    if (is_json_space(*p) || *p == ',') {
      ++p;
      continue;
    }
    skipper.start();
    const char* const stop = skipper.skip(p, end);
    if (stop == p || *p != '"' || !skipper.done()) {
      good = false;
      if (!skipper.done() || stop == p) break;
    } else {
      if (!first && add_line_ends) out += '\n';
      const auto line_begin = out.size();
      good = append_json_string({p, stop}, out) && good;
      if (first) add_line_ends = old_lines && (out.size() == line_begin || (out.back() != '\n' && out.back() != '\r'));
      first = false;
    }
    p = stop;
  }
  return good;
}

// As varve::is_utf8, at the speed of whole registers.
bool is_valid_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

}  // namespace varve::notebooks
