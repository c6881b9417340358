#include "analyzer/notebooks/script_cells.h"

#include <algorithm>

namespace varve::notebooks {
namespace {

enum class Marker { kNone, kCode, kOther };

// The line that begins at `at`, its line end included; `at` moves behind it.
std::string_view next_line(std::string_view text, std::size_t& at) {
  const auto end = text.find('\n', at);
  const auto begin = at;
  at = end == std::string_view::npos ? text.size() : end + 1;
  return text.substr(begin, at - begin);
}

std::string_view without_line_end(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
    line.remove_suffix(1);
  return line;
}

bool names_other_cell(std::string_view rest) {
  return rest.find("[markdown]") != std::string_view::npos || rest.find("[md]") != std::string_view::npos ||
         rest.find("[raw]") != std::string_view::npos;
}

Marker marker_of(std::string_view line) {
  line = without_line_end(line);
  if (!line.starts_with('#')) return Marker::kNone;
  line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (line.starts_with("%%")) {
    line.remove_prefix(2);
    while (line.starts_with('%')) line.remove_prefix(1);
    if (!line.empty() && line.front() != ' ' && line.front() != '[')
      return Marker::kNone;  // a cell magic in a comment: "# %%bash"
    return names_other_cell(line) ? Marker::kOther : Marker::kCode;
  }
  if (line.starts_with("In[") && line.ends_with("]:")) {
    const auto count = line.substr(3, line.size() - 5);
    return std::all_of(count.begin(), count.end(), [](char c) { return c == ' ' || (c >= '0' && c <= '9'); })
               ? Marker::kCode
               : Marker::kNone;
  }
  if (line == "<codecell>") return Marker::kCode;
  if (line == "<markdowncell>" || line == "<rawcell>") return Marker::kOther;
  return Marker::kNone;
}

// Follows Python's strings from line to line, so far as needed to know whether a line begins inside of one.
class TripleQuotes {
 public:
  bool inside() const { return quote_ != 0; }
  void pass(std::string_view line) {
    for (std::size_t i = 0; i < line.size();) {
      if (inside()) {
        i = leave(line, i);
      } else if (line[i] == '#') {
        return;
      } else if (line[i] == '"' || line[i] == '\'') {
        i = enter(line, i);
      } else {
        ++i;
      }
    }
  }

 private:
  bool is_triple(std::string_view line, std::size_t i, char quote) const {
    return line.substr(i, 3) == std::string(3, quote);
  }
  std::size_t leave(std::string_view line, std::size_t i) {
    if (line[i] == '\\') return i + 2;
    if (line[i] != quote_ || !is_triple(line, i, quote_)) return i + 1;
    quote_ = 0;
    return i + 3;
  }
  std::size_t enter(std::string_view line, std::size_t i) {
    const char quote = line[i];
    if (is_triple(line, i, quote)) {
      quote_ = quote;
      return i + 3;
    }
    for (++i; i < line.size() && line[i] != quote; ++i)
      if (line[i] == '\\') ++i;
    return i + 1;
  }
  char quote_ = 0;
};

bool has_code(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    auto line = without_line_end(next_line(text, at));
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.empty() && line.front() != '#') return true;
  }
  return false;
}

// The comments at the head of a file in which jupytext keeps the notebook's metadata.
bool is_from_jupytext(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto line = without_line_end(next_line(text, at));
    if (!line.empty() && line.front() != '#') return false;
    if (line.find("jupytext:") != std::string_view::npos) return true;
  }
  return false;
}

// Line by line, so that line numbers stay.
std::string uncover_magics(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    auto line = next_line(text, at);
    const bool hidden = line.starts_with("# %") || line.starts_with("# !");
    if (hidden && marker_of(line) == Marker::kNone) line.remove_prefix(2);
    out += line;
  }
  return out;
}

// The language of a line that opens a chunk, "```{python, echo=FALSE}" -> "python"; "" if it opens none.
std::string chunk_language(std::string_view line, std::size_t& ticks) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  ticks = std::min(line.find_first_not_of('`'), line.size());
  if (ticks < 3) return "";
  line.remove_prefix(ticks);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (!line.starts_with('{') || line.starts_with("{{")) return "";
  const auto name = line.substr(1, line.find_first_of(" ,}", 1) - 1);
  std::string language(name);
  std::transform(language.begin(), language.end(), language.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c | 0x20) : c; });
  return language;
}

bool closes_chunk(std::string_view line, std::size_t ticks) {
  line = without_line_end(line);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return line.size() >= ticks && line.find_first_not_of('`') == std::string_view::npos;
}

}  // namespace

ScriptCells cells_of_script(std::string_view text) {
  ScriptCells result;
  if (is_from_jupytext(text)) {
    result.rewritten = std::make_unique<const std::string>(uncover_magics(text));
    text = *result.rewritten;
  }
  TripleQuotes quotes;
  bool any_marker = false;
  bool is_code = true;
  std::size_t begin = 0;
  const auto close_cell = [&](std::size_t end) {
    const auto cell = text.substr(begin, end - begin);
    if (!is_code || (!any_marker && !has_code(cell))) return;  // only the head may be no cell at all
    result.cells.push_back({.text = cell, .number = std::uint32_t(result.cells.size() + 1), .language = {}});
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto line_begin = at;
    const auto line = next_line(text, at);
    if (const auto marker = quotes.inside() ? Marker::kNone : marker_of(line); marker != Marker::kNone) {
      close_cell(line_begin);
      any_marker = true;
      is_code = marker == Marker::kCode;
      begin = at;
    }
    quotes.pass(line);
  }
  if (!any_marker) {
    result.cells = {{.text = text, .number = 0, .language = {}}};
  } else {
    close_cell(text.size());
  }
  return result;
}

ScriptCells chunks_of_markdown(std::string_view text) {
  ScriptCells result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t ticks = 0;
    auto language = chunk_language(next_line(text, at), ticks);
    if (ticks < 3) continue;
    const auto begin = at;
    auto end = text.size();
    while (at < text.size()) {
      const auto line_begin = at;
      if (closes_chunk(next_line(text, at), ticks)) {
        end = line_begin;
        break;
      }
    }
    if (language.empty()) continue;  // a block that only shows code
    result.cells.push_back({.text = text.substr(begin, end - begin),
                            .number = std::uint32_t(result.cells.size() + 1),
                            .language = std::move(language)});
  }
  return result;
}

}  // namespace varve::notebooks
