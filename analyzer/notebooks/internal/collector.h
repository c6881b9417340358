#pragma once
// Where the readers of one cell put what they find, and what they must know of the text around the text they read.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "analyzer/notebooks/findings.h"
#include "analyzer/notebooks/internal/backends.h"
#include "analyzer/notebooks/internal/source_chars.h"

namespace varve::notebooks {

inline constexpr std::size_t kMaxNameBytes = 512;
inline constexpr std::size_t kMaxArgumentBytes = 2048;
inline constexpr int kMaxNesting = 4;  // code in strings in commands in strings …

// A piece of a cell's text, or text made of it (a string's value): then all of it is told to be at one line.
struct Source {
  std::string_view text;
  LineCounter* lines = nullptr;  // of the text that `text` is a view into; nullptr: everything is at `line`
  std::uint32_t line = 1;

  std::uint32_t line_of(const char* place) const { return lines ? lines->line_of(place) : line; }
  Source part(std::string_view piece) const { return {.text = piece, .lines = lines, .line = line}; }
  const char* begin() const { return text.data(); }
  const char* end() const { return text.data() + text.size(); }
};

struct Collector {
  explicit Collector(Findings& findings) : out(findings) {}

  Findings& out;
  std::vector<BackendHit> backend_hits;
  std::uint32_t cell = 0;
  bool written_file = false;              // imports are marked, installs are not taken: nothing ran
  std::optional<ImportKind> nested_kind;  // of plain imports in text that is code only for what holds it
  int nesting = 0;
  bool in_function = false;  // what is read now

  void add(Import import);
  void add(Install install);
  void add_library(std::string name);
  void add(BackendHit hit);
};

// Reads what is nested in what is being read; not deeper than kMaxNesting.
template <typename Read>
void read_nested(Collector& out, std::optional<ImportKind> kind, Read&& read) {
  if (out.nesting >= kMaxNesting) return;
  const auto outer_kind = out.nested_kind;
  ++out.nesting;
  if (!outer_kind) out.nested_kind = kind;
  read();
  out.nested_kind = outer_kind;
  --out.nesting;
}

struct PythonOptions {
  bool magics = true;   // IPython's lines; not in files and strings
  bool cython = false;  // cimport
};

void read_python_source(const Source& source, Collector& out, const PythonOptions& options);
void read_shell_source(const Source& source, Collector& out);

}  // namespace varve::notebooks
