#pragma once
#include <cstdint>
#include <string_view>

namespace varve::notebooks {

enum class FileKind : std::uint8_t { kOther, kNotebook, kPython, kR, kJulia, kMarkdown, kArchive };

// What the ending of a file's name says, in any case: .ipynb; .py; .r; .jl; .rmd and .qmd; zip and tar archives.
FileKind kind_of_name(std::string_view name);

// Folders whose files are nobody's notebooks: installed packages, caches, checkpoints, version control. By name alone.
bool is_passed_over(std::string_view folder_name);

}  // namespace varve::notebooks
