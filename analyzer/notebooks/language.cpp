#include "analyzer/notebooks/language.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/text/strings.h"

namespace varve::notebooks {
namespace {

// The longest prefix that fits decides, so more special names stand before their beginnings.
constexpr std::pair<std::string_view, std::string_view> kKernelPrefixes[] = {
    {"pysparkkernel", "python"},
    {"sparkrkernel", "r"},
    {"sparkkernel", "scala"},
    {"python", "python"},
    {"ipython", "python"},
    {"pyspark", "python"},
    {"xpython", "python"},
    {"xeus-python", "python"},
    {"conda_", "python"},
    {"sagemath", "python"},
    {"sos", "python"},
    {"julia", "julia"},
    {"xcpp", "c++"},
    {"xeus-cling", "c++"},
    {"bash", "bash"},
    {"scala", "scala"},
    {"almond", "scala"},
    {"spylon", "scala"},
    {"ruby", "ruby"},
    {"gophernotes", "go"},
    {"rust", "rust"},
    {"evcxr", "rust"},
    {"javascript", "javascript"},
    {"jslab", "javascript"},
    {"tslab", "typescript"},
    {"deno", "typescript"},
    {".net-csharp", "c#"},
    {".net-fsharp", "f#"},
    {".net-powershell", "powershell"},
    {"octave", "octave"},
    {"matlab", "matlab"},
    {"ihaskell", "haskell"},
    {"haskell", "haskell"},
    {"ocaml", "ocaml"},
    {"stata", "stata"},
    {"saskernel", "sas"},
    {"kotlin", "kotlin"},
    {"ijava", "java"},
    {"java", "java"},
    {"xsql", "sql"},
};

std::string_view trimmed_line(std::string_view text, std::size_t& at) {
  const auto end = std::min(text.find('\n', at), text.size());
  auto line = text.substr(at, end - at);
  at = end + 1;
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '.';
}

// `name <- value`, which Python reads as a comparison that nobody writes as a statement.
bool is_r_assignment(std::string_view line) {
  std::size_t at = 0;
  while (at < line.size() && is_name_character(line[at])) ++at;
  return at != 0 && line.substr(at).starts_with(" <- ");
}

bool is_python_line(std::string_view line) {
  return line.starts_with("import ") || line.starts_with("from ") || line.starts_with("def ") ||
         line.starts_with("class ") || line.starts_with("%") || line.starts_with("print ") ||
         line.starts_with("elif ") || line.starts_with("except");
}

bool is_julia_line(std::string_view line) {
  return line.starts_with("using ") || line.starts_with("Pkg.add(") || line == "end" ||
         (line.starts_with("function ") && line.ends_with(")"));
}

}  // namespace

std::string language_of_name(std::string_view name) {
  const auto text = to_lower(name);
  constexpr std::array kPython = {"python",  "python2",  "python3",  "python 2", "python 3",
                                  "ipython", "ipython2", "ipython3", "pyspark",  "pyspark3",
                                  "xpython", "sage",     "sagemath", "sos",      "pyodide"};
  if (std::find(kPython.begin(), kPython.end(), text) != kPython.end()) return "python";
  if (text == "r" || text == "ir" || text == "rlang" || text == "sparkr") return "r";
  if (text.starts_with("julia")) return "julia";
  if (text == "csharp") return "c#";
  return text;
}

std::string language_of_kernel(std::string_view name) {
  const auto text = to_lower(name);
  if (text == "ir" || text == "r" || text == "irkernel" || text.starts_with("ir-") || text.starts_with("ir_") ||
      (text.size() > 2 && text.starts_with("ir") && text[2] >= '0' && text[2] <= '9'))
    return "r";
  if (text.starts_with("conda-")) {  // nb_conda_kernels: conda-env-NAME-LANGUAGE
    if (text.ends_with("-py")) return "python";
    if (text.ends_with("-r")) return "r";
    if (text.ends_with("-jl")) return "julia";
  }
  if (text == "conda_r" || text.ends_with("_r_kernel")) return "r";
  for (const auto& [prefix, language] : kKernelPrefixes)
    if (text.starts_with(prefix)) return std::string(language);
  return "";
}

std::string language_of_notebook(std::string_view kernel_language, std::string_view language_name,
                                 std::string_view kernel_name) {
  if (auto language = language_of_name(kernel_language); !language.empty()) return language;
  if (auto language = language_of_name(language_name); !language.empty()) return language;
  return language_of_kernel(kernel_name);
}

std::string language_of_text(std::string_view text) {
  std::size_t python = 0, r = 0, julia = 0, lines = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto line = trimmed_line(text, at);
    if (line.empty() || line.front() == '#') continue;
    ++lines;
    python += is_python_line(line) ? 1 : 0;
    r += is_r_assignment(line) || line.starts_with("library(") ? 1 : 0;
    julia += is_julia_line(line) ? 1 : 0;
  }
  if (lines == 0) return "";
  if (python == 0 && r > julia) return "r";
  if (python == 0 && julia > r) return "julia";
  return "python";
}

}  // namespace varve::notebooks
