#pragma once
// Import statements of Python, whole or broken.
#include <string>
#include <string_view>
#include <vector>

namespace varve::notebooks {

struct ImportStatement {
  struct Name {
    std::string name;    // "a.b" of `from a import b`, "a" of `from a import *`, ".b" of `from . import b`
    std::string module;  // "a"; "." if relative
  };
  std::vector<Name> names;
  bool rescued = false;       // Python would refuse the line
  const char* end = nullptr;  // where reading goes on
};

// Reads the statement at `at`, where one of the words `import`, `from`, `cimport` stands. False if it is none, even a
// broken one: prose that begins with these words, imports of other languages.
bool parse_import(const char* at, const char* end, ImportStatement& out);

bool is_python_keyword(std::string_view word);

}  // namespace varve::notebooks
