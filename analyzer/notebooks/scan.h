#pragma once
// Static imports of notebooks and scripts: files, folders, archives. Reads text, never runs anything.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/findings.h"
#include "core/base/digest.h"
#include "core/base/threads/cancel.h"

namespace varve::notebooks {

struct ScannedFile {
  std::string path;      // as given or found; "archive.zip!inner/a.ipynb" inside an archive
  std::string format;    // "ipynb" "script" "r" "julia" "rmarkdown"
  int nbformat = 0;      // major; 0 for scripts
  std::string language;  // lower case: "python" "r" "julia" …; "" = not told and not to be seen
  std::uint32_t code_cells = 0;
  Digest code_digest;        // SHA-256 over the code cells' text: equal = the same notebook; all zero = no code
  std::string duplicate_of;  // path of the first file with the same code; "" = this is the first
  std::vector<Import> imports;
  std::vector<Install> installs;
  std::vector<Hint> hints;
  std::vector<Backend> backends;
};

struct ScanError {
  std::string path;
  std::string what;  // one line; the scan went on
};

struct ScanResult {
  std::vector<ScannedFile> files;  // by path
  std::vector<ScanError> errors;   // by path
  std::uint64_t bytes = 0;         // read
  std::uint64_t skipped = 0;       // files that are neither notebooks nor scripts
};

struct ScanOptions {
  unsigned jobs = 0;                              // 0 = one per core
  std::uint64_t max_cell_bytes = 64u << 20;       // larger cells and scripts are reported, not read
  std::uint64_t max_notebook_bytes = 256u << 20;  // larger ones, outputs included, are reported, not read
  std::uint64_t max_code_bytes = 256u << 20;      // of one notebook's code; cells beyond it are reported, not read
  // Whether a top-level name is a distribution's: decides where a folder without __init__.py beside the notebook, or a
  // module in the repository's root, bears the same name. Called from any thread. Absent: such names are local.
  std::function<bool(std::string_view name)> is_distribution = {};
};

// Scans notebooks (.ipynb), scripts (.py .r .jl), text notebooks (.Rmd .qmd), folders of them, and zip and tar archives
// of them (not archives within archives). What cannot be read becomes an error and the scan goes on; a file that is
// broken from some byte on gives both an error and what was found before. The same paths give the same result with any
// number of jobs; of files with the same code the first in the order of the walk (byte order of paths; inside an
// archive its own order) is the one that others are duplicates of. `each`, if given, is called with every file in that
// order, one call at a time, instead of keeping it in the result: memory is then bounded by `jobs` files and the
// digests of all. Throws only Cancelled, and what `each` throws.
ScanResult scan(const std::vector<std::filesystem::path>& paths, const ScanOptions& options, const CancelFlag& cancel,
                const std::function<void(ScannedFile&&)>& each = {});

}  // namespace varve::notebooks
