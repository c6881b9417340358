#include "analyzer/notebooks/file_kind.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/codec/archive_reader.h"

namespace varve::notebooks {

FileKind kind_of_name(std::string_view name) {
  static constexpr std::pair<std::string_view, FileKind> kEndings[] = {
      {".ipynb", FileKind::kNotebook}, {".py", FileKind::kPython},    {".r", FileKind::kR},
      {".jl", FileKind::kJulia},       {".rmd", FileKind::kMarkdown}, {".qmd", FileKind::kMarkdown}};
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return FileKind::kOther;
  std::string ending(name.substr(dot));
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c | 0x20) : c; });
  for (const auto& [known, kind] : kEndings)
    if (ending == known) return kind;
  return codec::has_archive_name(name) ? FileKind::kArchive : FileKind::kOther;
}

bool is_passed_over(std::string_view folder_name) {
  static constexpr std::array<std::string_view, 9> kNames = {".ipynb_checkpoints",
                                                             "__pycache__",
                                                             "site-packages",
                                                             "dist-packages",
                                                             "node_modules",
                                                             ".git",
                                                             ".hg",
                                                             ".svn",
                                                             "__MACOSX"};
  return std::find(kNames.begin(), kNames.end(), folder_name) != kNames.end();
}

}  // namespace varve::notebooks
