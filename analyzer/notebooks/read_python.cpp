#include <algorithm>

#include "analyzer/notebooks/findings.h"
#include "analyzer/notebooks/internal/collector.h"
#include "analyzer/notebooks/internal/command_reader.h"
#include "analyzer/notebooks/internal/gpu_hints.h"
#include "analyzer/notebooks/internal/magics.h"
#include "core/base/text/utf8.h"

namespace varve::notebooks {

namespace {

// Where a cell's magic stands if it has one: comments (Colab's forms) and empty lines may stand above it.
const char* find_cell_magic(std::string_view text) {
  const char* at = text.data();
  const char* end = at + text.size();
  if (text.starts_with(kByteOrderMark)) at += kByteOrderMark.size();
  while (at != end) {
    at = skip_blanks(at, end);
    if (at == end) return nullptr;
    if (is_newline(*at)) {
      at = skip_newline(at, end);
    } else if (*at == '#') {
      at = find_newline(at, end);
    } else {
      return between(at, end).starts_with("%%") ? at : nullptr;
    }
  }
  return nullptr;
}

// One per name, kind and place, by line.
void put_in_order(std::vector<Import>& imports, std::size_t first) {
  const auto begin = imports.begin() + static_cast<std::ptrdiff_t>(first);
  std::stable_sort(begin, imports.end(), [](const Import& a, const Import& b) { return a.line < b.line; });
  const auto same = [](const Import& a, const Import& b) {
    return a.line == b.line && a.kind == b.kind && a.unknown_name == b.unknown_name && a.name == b.name;
  };
  std::size_t line_start = first;
  std::size_t kept = first;
  constexpr std::size_t kLookBack = 64;  // a line that imports more than this may keep a name twice
  for (std::size_t i = first; i < imports.size(); ++i) {
    if (kept > first && imports[kept - 1].line != imports[i].line) line_start = kept;
    const auto from = std::max(line_start, kept > kLookBack ? kept - kLookBack : 0);
    bool known = false;
    for (auto k = from; k < kept && !known; ++k) known = same(imports[k], imports[i]);
    if (known) continue;
    if (kept != i) imports[kept] = std::move(imports[i]);
    ++kept;
  }
  imports.erase(imports.begin() + static_cast<std::ptrdiff_t>(kept), imports.end());
}

}  // namespace

Findings read_python(const std::vector<Cell>& cells) {
  Findings findings;
  Collector out(findings);
  for (const auto& cell : cells) {
    LineCounter lines(cell.text);
    out.cell = cell.number;
    const auto first = findings.imports.size();
    const Source source{.text = cell.text, .lines = &lines};
    if (const char* magic = find_cell_magic(source.text)) {
      read_cell_magic(source.part(between(magic, source.end())), out);
    } else {
      read_python_source(source, out, {});
    }
    put_in_order(findings.imports, first);
  }
  findings.backends = backends_of(out.backend_hits, findings.imports);
  add_gpu_hints(cells, findings);
  return findings;
}

Findings read_module(std::string_view text) {
  Findings findings;
  Collector out(findings);
  LineCounter lines(text);
  read_python_source({.text = text, .lines = &lines}, out, {.magics = false});
  put_in_order(findings.imports, 0);
  return findings;
}

Findings read_shell(std::string_view text) {
  Findings findings;
  Collector out(findings);
  LineCounter lines(text);
  read_shell_source({.text = text, .lines = &lines}, out);
  return findings;
}

Findings read_command(const std::vector<std::string>& words) {
  Findings findings;
  Collector out(findings);
  read_command_words(words, 1, out, {});
  return findings;
}

}  // namespace varve::notebooks
