#pragma once
// Which magics there are, whose they are, and what the text of their cells is.
#include <array>
#include <cstdint>
#include <string_view>

namespace varve::notebooks {

enum class MagicBody : std::uint8_t { kUnknown, kPython, kShell, kCython, kFile, kScript, kOther };

struct MagicFacts {
  std::string_view name;
  MagicBody body = MagicBody::kUnknown;       // of a cell that begins with it; kUnknown: no cell magic
  std::array<std::string_view, 2> modules{};  // what it needs, IPython's own apart
  bool code_in_line = false;                  // statements follow the options on its line
  std::string_view value_options{};           // before these statements, separated by blanks
};

// nullptr for a magic we never heard of.
const MagicFacts* find_magic(std::string_view name);

}  // namespace varve::notebooks
