#pragma once
// The blocks a line of Python stands in, by indentation: what is imported in some of them is optional.
#include <cstddef>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {

class CodeBlocks {
 public:
  // A statement begins at `indent`; `word` is its first word, `text` all that follows from there on. Imports of a `try`
  // that turns out to catch their failure are made optional in `imports`.
  void begin_line(int indent, std::string_view word, std::string_view text, std::vector<Import>& imports);
  // Whether the statement may be passed over, or may fail without harm.
  bool optional() const { return !blocks_.empty() && blocks_.back().optional; }
  // Whether it stands in the body of a function.
  bool in_function() const { return !blocks_.empty() && blocks_.back().in_function; }

 private:
  enum class Kind { kIf, kTry, kOther };
  struct Block {
    int indent;
    Kind kind;
    bool optional;
    bool in_function = false;
    bool caught = false;  // a handler of the `try` catches failed imports
    bool body_done = false;
    std::size_t first_import = 0;  // of a `try`'s body
    std::size_t end_import = 0;
  };

  bool continue_block(std::string_view word, std::string_view text, std::vector<Import>& imports);
  void open_block(int indent, std::string_view word, std::string_view text, std::size_t imports);

  std::vector<Block> blocks_;
};

}  // namespace varve::notebooks
