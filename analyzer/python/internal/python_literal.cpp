#include "analyzer/python/internal/python_literal.h"

#include "analyzer/python/internal/text.h"
#include "core/base/text/utf8.h"

namespace varve::python {

namespace {

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view& rest) : rest_(rest) {}

  std::optional<Literal> read(std::size_t depth) {
    skip_python_space(rest_);
    if (rest_.empty() || depth > kMaxLiteralDepth || ++values_ > kMaxLiteralValues) return std::nullopt;
    const char c = rest_.front();
    if (c == '\'' || c == '"') return read_text(false);
    if ((c == 'r' || c == 'u') && rest_.size() > 1 && (rest_[1] == '\'' || rest_[1] == '"')) {
      rest_.remove_prefix(1);
      return read_text(c == 'r');
    }
    if (c == '[') return read_items(depth, ']', Literal::Kind::kList);
    if (c == '(') return read_items(depth, ')', Literal::Kind::kList);
    if (c == '{') return read_items(depth, '}', Literal::Kind::kDict);
    return read_word();
  }

 private:
  bool take(char c) {
    skip_python_space(rest_);
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<Literal> read_word() {
    std::size_t size = 0;
    while (size < rest_.size() &&
           (is_alnum(rest_[size]) || rest_[size] == '_' || rest_[size] == '.' || rest_[size] == '-'))
      ++size;
    if (size == 0) return std::nullopt;
    Literal out;
    out.text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }

  // "{" begins a dict; without ":" after the first item it was a set.
  std::optional<Literal> read_items(std::size_t depth, char close, Literal::Kind kind) {
    Literal out;
    out.kind = kind;
    rest_.remove_prefix(1);
    while (!take(close)) {
      auto item = read(depth + 1);
      if (!item) return std::nullopt;
      out.items.push_back(std::move(*item));
      if (kind == Literal::Kind::kDict && out.items.size() == 1) {
        skip_python_space(rest_);
        if (!rest_.starts_with(':')) kind = out.kind = Literal::Kind::kList;
      }
      if (kind == Literal::Kind::kDict) {
        if (!take(':')) return std::nullopt;
        auto value = read(depth + 1);
        if (!value) return std::nullopt;
        out.items.push_back(std::move(*value));
      }
      if (take(',')) continue;
      if (take(close)) return out;
      return std::nullopt;
    }
    return out;
  }

  // Texts that stand beside each other are one, as in Python.
  std::optional<Literal> read_text(bool raw) {
    Literal out;
    out.kind = Literal::Kind::kText;
    do {
      if (!read_one_text(raw, out.text)) return std::nullopt;
      skip_python_space(rest_);
    } while (rest_.starts_with('\'') || rest_.starts_with('"'));
    return out;
  }
  bool read_one_text(bool raw, std::string& out) {
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    for (;;) {
      const char stops[] = {quote, '\\', '\n'};
      const auto end = rest_.find_first_of(std::string_view(stops, sizeof stops));
      if (end == std::string_view::npos || rest_[end] == '\n') return false;
      out += rest_.substr(0, end);
      const char stop = rest_[end];
      rest_.remove_prefix(end + 1);
      if (stop == quote) return true;
      if (!read_escape(raw, out)) return false;
    }
  }
  bool read_escape(bool raw, std::string& out) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    if (raw) {
      out += '\\';
      out += c;
      return true;
    }
    switch (c) {
      case '\n':
        return true;
      case 'n':
        out += '\n';
        return true;
      case 't':
        out += '\t';
        return true;
      case 'r':
        out += '\r';
        return true;
      case 'x':
        return read_code(2, out);
      case 'u':
        return read_code(4, out);
      case 'U':
        return read_code(8, out);
      case '\\':
      case '\'':
      case '"':
        out += c;
        return true;
      default:
        out += '\\';
        out += c;
        return true;
    }
  }
  bool read_code(std::size_t digits, std::string& out) {
    if (rest_.size() < digits) return false;
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const int digit = hex_digit(lower(rest_[i]));
      if (digit < 0) return false;
      code = code << 4 | std::uint32_t(digit);
    }
    rest_.remove_prefix(digits);
    const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    append_utf8(is_character ? code : 0xFFFD, out);
    return true;
  }

  std::string_view& rest_;
  std::size_t values_ = 0;
};

}  // namespace

void skip_python_space(std::string_view& text) {
  for (;;) {
    text = trim_left(text);
    if (!text.starts_with('#')) return;
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
}

std::optional<Literal> take_literal(std::string_view& text) { return LiteralReader(text).read(0); }

}  // namespace varve::python
