#pragma once
// Which modules a module imports as it is loaded, by its bytecode (a .pyc file). Format: PEP 552 (header), CPython's
// Python/marshal.c (objects; there is no other description) and Lib/opcode.py of each version.
//
// Looked at is the code that runs whenever the module is imported: not that of functions and classes, nor what a
// condition decides on (`if TYPE_CHECKING:`, `if backend == "torch":`, what follows an import that fails). Of one in
// 400 modules a branch is taken for certain, as its jumps have other forms. Good for fetching ahead and for nothing
// else.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace varve::index {

// `from ..a.b import c, d` is level 2, name "a.b", members c and d, which may be modules or not.
struct PythonImport {
  std::uint32_t level = 0;     // 0: absolute
  std::string_view name = {};  // "" is possible if the level is not 0
  std::vector<std::string_view> members = {};
};

// Of one module; what is behind them is left out.
inline constexpr std::size_t kMaxImports = 4096;
inline constexpr std::size_t kMaxImportMembers = 8192;

// In order; views into `bytecode`. Absent of what is no bytecode of CPython 3.8 to 3.13, or is damaged. Never throws
// but for memory.
std::optional<std::vector<PythonImport>> imports_of(ByteView bytecode);

}  // namespace varve::index
