#pragma once
// Literals of Python's grammar as repr() writes them: strings, numbers, True, False, None, lists, tuples, sets, dicts.
// Nothing is evaluated.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varve::python {

inline constexpr std::size_t kMaxLiteralDepth = 16;
inline constexpr std::size_t kMaxLiteralValues = 1'000'000;

struct Literal {
  enum class Kind : unsigned char { kText, kWord, kList, kDict };
  Kind kind = Kind::kWord;
  std::string text;            // of kText its value; of kWord as written: "None", "12"
  std::vector<Literal> items;  // of kList; of kDict key, value, key, value …
  bool is_text() const { return kind == Kind::kText; }
};

// Takes one literal off the start of `text` with the blanks and comments before it. Absent, with `text` anywhere, if
// none is there or it exceeds a limit.
std::optional<Literal> take_literal(std::string_view& text);

// Takes blanks, line ends and comments off.
void skip_python_space(std::string_view& text);

}  // namespace varve::python
