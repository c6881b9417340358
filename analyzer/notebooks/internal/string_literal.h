#pragma once
// String literals of Python: of every prefix and version, broken ones too.
#include <optional>
#include <string>
#include <string_view>

namespace varve::notebooks {

struct StringLiteral {
  const char* end =
      nullptr;  // behind the closing quote; or where an unterminated one gives up: its line's end, the text's end
  std::string_view body;  // between the quotes, as written
  char quote = 0;
  bool triple = false;
  bool raw = false;
  bool formatted = false;  // f"" and t"": braces hold code
  bool bytes = false;
  bool terminated = false;
};

// Reads literals of one text. Keeps count of f-strings that do not end as Python 3.12 reads them: these are read as
// older Pythons do, and past a number of them all are, so that hostile text costs no more than its length.
class StringReader {
 public:
  explicit StringReader(std::string_view text) : begin_(text.data()), end_(text.data() + text.size()) {}
  // `quote` points to the opening quote; the prefix before it is looked at.
  StringLiteral read(const char* quote);

 private:
  const char* skip_formatted(const char* at, const StringLiteral& literal) const;

  const char* begin_;
  const char* end_;
  int failures_ = 0;
};

// What the literal stands for, with its escapes resolved. std::nullopt if it holds a brace expression (f-strings only),
// or more than a megabyte.
std::optional<std::string> literal_value(const StringLiteral& literal);
// The same, but expressions of f-strings stay as they are written: "{name}". Empty if it holds more than a megabyte.
std::string literal_text(const StringLiteral& literal);

}  // namespace varve::notebooks
