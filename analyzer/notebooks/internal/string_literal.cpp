#include "analyzer/notebooks/internal/string_literal.h"

#include <array>
#include <cstring>

#include "analyzer/notebooks/internal/source_chars.h"
#include "core/base/text/utf8.h"

namespace varve::notebooks {

namespace {

constexpr int kMaxFormattedFailures = 16;
constexpr std::size_t kMaxFormattedDepth = 64;
constexpr std::size_t kMaxLiteralBytes = 1 << 20;

bool is_escaped(const char* begin, const char* at) {
  const char* slash = at;
  while (slash != begin && slash[-1] == '\\') --slash;
  return ((at - slash) & 1) != 0;
}

// The closing quotes of a triple-quoted string, or `end`.
const char* find_triple(const char* at, const char* end, char quote) {
  const char* begin = at;
  while (at != end) {
    at = static_cast<const char*>(std::memchr(at, quote, static_cast<std::size_t>(end - at)));
    if (!at) return end;
    if (is_escaped(begin, at)) {
      ++at;
    } else if (end - at >= 3 && at[1] == quote && at[2] == quote) {
      return at;
    } else {
      ++at;
    }
  }
  return end;
}

// The closing quote, or the newline or end where an unterminated string stops.
const char* find_single(const char* at, const char* end, char quote) {
  while (at != end) {
    const char c = *at;
    if (c == quote || is_newline(c)) return at;
    if (c == '\\') {
      ++at;
      if (at == end) return end;
      at = is_newline(*at) ? skip_newline(at, end) : at + 1;
    } else {
      ++at;
    }
  }
  return end;
}

void read_prefix(const char* begin, const char* quote, StringLiteral& literal) {
  const char* start = quote;
  while (start != begin && quote - start < 4 && is_word(start[-1])) --start;
  if (quote - start > 3) return;
  bool raw = false, formatted = false, bytes = false;
  for (const char* at = start; at != quote; ++at) {
    switch (*at | 0x20) {
      case 'r':
        raw = true;
        break;
      case 'f':
      case 't':
        formatted = true;
        break;
      case 'b':
        bytes = true;
        break;
      case 'u':
        break;
      default:
        return;  // a word that ends before a quote is no prefix
    }
  }
  literal.raw = raw;
  literal.formatted = formatted;
  literal.bytes = bytes;
}

// One string inside which an f-string's scan stands. Fields nest in format specifications only, so that all open fields
// but the innermost are in theirs.
struct OpenString {
  char quote;
  bool triple, raw, formatted;
  int fields = 0;  // open replacement fields
  int brackets =
      0;  // open brackets in the innermost field's expression, its own brace included; 0 = in text or specification
};

struct FormattedScan {
  const char* begin;
  const char* at;
  const char* end;
  std::array<OpenString, kMaxFormattedDepth> open;
  std::size_t depth = 0;

  bool step_text(OpenString& top);
  bool step_code(OpenString& top);
  bool skip_escape(const OpenString& top);
  bool open_string();
};

bool FormattedScan::skip_escape(const OpenString& top) {
  ++at;
  if (at == end) return false;
  if (*at == 'N' && !top.raw && end - at > 1 && at[1] == '{') {  // \N{NAME} is a letter, no expression
    while (at != end && *at != '}' && *at != top.quote && !is_newline(*at)) ++at;
    if (at == end || *at != '}') return false;
    ++at;
  } else if (is_newline(*at)) {
    at = skip_newline(at, end);
  } else if (*at != '{' && *at != '}') {
    ++at;
  }
  return true;
}

// In the text (or a format specification) of the innermost string. False if it cannot go on.
bool FormattedScan::step_text(OpenString& top) {
  const char c = *at;
  if (c == top.quote && (!top.triple || (end - at >= 3 && at[1] == c && at[2] == c))) {
    if (top.fields > 0) return false;
    at += top.triple ? 3 : 1;
    --depth;
    return true;
  }
  if (is_newline(c) && !top.triple) return false;
  if (c == '\\') return skip_escape(top);
  ++at;
  if (!top.formatted) return true;
  if (c == '{') {
    if (top.fields == 0 && at != end && *at == '{') {
      ++at;
    } else {
      ++top.fields;
      top.brackets = 1;
    }
  } else if (c == '}' && top.fields > 0) {
    --top.fields;
  }
  return true;
}

bool FormattedScan::open_string() {
  if (depth == open.size()) return false;
  StringLiteral prefix;
  read_prefix(begin, at, prefix);
  const char quote = *at;
  const bool triple = end - at >= 3 && at[1] == quote && at[2] == quote;
  open[depth++] = {.quote = quote, .triple = triple, .raw = prefix.raw, .formatted = prefix.formatted};
  at += triple ? 3 : 1;
  return true;
}

// In the expression of a replacement field.
bool FormattedScan::step_code(OpenString& top) {
  const char c = *at;
  if (c == '\'' || c == '"') return open_string();
  if (c == '#') {
    at = find_newline(at, end);
    return at != end;
  }
  ++at;
  if (c == '(' || c == '[' || c == '{') {
    ++top.brackets;
  } else if (c == ')' || c == ']' || c == '}') {
    if (--top.brackets == 0) {
      if (c != '}') return false;
      --top.fields;
    }
  } else if (c == ':' && top.brackets == 1) {
    top.brackets = 0;
  }
  return true;
}

// Python takes no code point beyond Unicode; such a one is left out.
void append_code_point(std::string& out, unsigned long code) {
  if (code < 0x110000) append_utf8(std::uint32_t(code), out);
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

// Up to `max` digits of `base` at `at`, which moves behind them.
unsigned long read_digits(std::string_view body, std::size_t& at, std::size_t max, int base) {
  unsigned long value = 0;
  for (std::size_t read = 0; read < max && at < body.size() && digit_value(body[at]) < base; ++read, ++at) {
    value = value * static_cast<unsigned>(base) + static_cast<unsigned>(digit_value(body[at]));
  }
  return value;
}

// `at` stands behind the backslash.
void append_escape(std::string& out, std::string_view body, std::size_t& at) {
  const char c = body[at++];
  switch (c) {
    case 'n':
      out += '\n';
      return;
    case 't':
      out += '\t';
      return;
    case 'r':
      out += '\r';
      return;
    case 'a':
    case 'b':
    case 'f':
    case 'v':
      out += ' ';
      return;
    case '\\':
    case '\'':
    case '"':
      out += c;
      return;
    case '\n':
      return;
    case '\r':
      if (at < body.size() && body[at] == '\n') ++at;
      return;
    case 'x':
      append_code_point(out, read_digits(body, at, 2, 16));
      return;
    case 'u':
      append_code_point(out, read_digits(body, at, 4, 16));
      return;
    case 'U':
      append_code_point(out, read_digits(body, at, 8, 16));
      return;
    default:
      break;
  }
  if (c >= '0' && c <= '7') {
    --at;
    append_code_point(out, read_digits(body, at, 3, 8));
    return;
  }
  out += '\\';
  out += c;
}

// Text with escapes resolved. `holds_code` tells whether a brace expression was met; it is copied as it stands.
std::string resolve(const StringLiteral& literal, bool& holds_code) {
  const auto body = literal.body;
  std::string out;
  out.reserve(body.size());
  for (std::size_t at = 0; at < body.size();) {
    const char c = body[at];
    if (c == '\\' && !literal.raw && at + 1 < body.size()) {
      append_escape(out, body, ++at);
      continue;
    }
    if (literal.formatted && (c == '{' || c == '}')) {
      if (at + 1 < body.size() && body[at + 1] == c) {
        ++at;
      } else {
        holds_code = true;
      }
    }
    out += c;
    ++at;
  }
  return out;
}

}  // namespace

// Python 3.12: quotes of the same kind, newlines and comments may stand inside braces. nullptr if it does not end this
// way.
const char* StringReader::skip_formatted(const char* at, const StringLiteral& literal) const {
  FormattedScan scan{.begin = at, .at = at, .end = end_, .open = {}, .depth = 1};
  scan.open[0] = {.quote = literal.quote, .triple = literal.triple, .raw = literal.raw, .formatted = true};
  while (scan.depth > 0) {
    if (scan.at >= end_) return nullptr;
    OpenString& top = scan.open[scan.depth - 1];
    if (!(top.brackets > 0 ? scan.step_code(top) : scan.step_text(top))) return nullptr;
  }
  return scan.at;
}

StringLiteral StringReader::read(const char* quote) {
  StringLiteral literal;
  literal.quote = *quote;
  literal.triple = end_ - quote >= 3 && quote[1] == *quote && quote[2] == *quote;
  read_prefix(begin_, quote, literal);
  const std::ptrdiff_t width = literal.triple ? 3 : 1;
  const char* start = quote + width;
  if (literal.formatted && failures_ < kMaxFormattedFailures) {
    if (const char* stop = skip_formatted(start, literal)) {
      literal.end = stop;
      literal.body = between(start, stop - width);
      literal.terminated = true;
      return literal;
    }
    ++failures_;
  }
  const char* stop = literal.triple ? find_triple(start, end_, *quote) : find_single(start, end_, *quote);
  literal.body = between(start, stop);
  literal.terminated = stop != end_ && *stop == *quote;
  literal.end = literal.terminated ? stop + width : stop;
  return literal;
}

std::optional<std::string> literal_value(const StringLiteral& literal) {
  if (literal.body.size() > kMaxLiteralBytes) return std::nullopt;
  bool holds_code = false;
  auto text = resolve(literal, holds_code);
  if (holds_code) return std::nullopt;
  return text;
}

std::string literal_text(const StringLiteral& literal) {
  if (literal.body.size() > kMaxLiteralBytes) return {};
  bool holds_code = false;
  return resolve(literal, holds_code);
}

}  // namespace varve::notebooks
