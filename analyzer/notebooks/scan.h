#pragma once
// Static imports of notebooks and scripts: files, folders, archives. Reads text, never runs anything.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "analyzer/notebooks/findings.h"
#include "core/base/cancel.h"
#include "core/base/digest.h"

namespace varve::notebooks {

struct ScannedFile {
  std::string path;            // as given or found; "archive.zip!inner/a.ipynb" inside an archive
  std::string format;          // "ipynb" "script" "r" "julia"
  int nbformat = 0;            // major; 0 for scripts
  std::string language;        // lower case: "python" "r" "julia" …; "" = not told and not to be seen
  std::uint32_t code_cells = 0;
  Digest code_digest;          // SHA-256 over the code cells' text: equal = the same notebook
  std::string duplicate_of;    // path of the first file with the same code; "" = this is the first
  std::vector<Import> imports;
  std::vector<Install> installs;
  std::vector<Hint> hints;
};

struct ScanError {
  std::string path;
  std::string what;            // one line; the scan went on
};

struct ScanResult {
  std::vector<ScannedFile> files;  // by path
  std::vector<ScanError> errors;   // by path
  std::uint64_t bytes = 0;         // read
  std::uint64_t skipped = 0;       // files that are neither notebooks nor scripts
};

struct ScanOptions {
  unsigned jobs = 0;               // 0 = one per core
  std::uint64_t max_cell_bytes = 64u << 20;  // larger cells are reported, not read
};

// `each`, if given, is called with every file as it is done (one call at a time, in no order) instead of keeping it in the result.
ScanResult scan(const std::vector<std::filesystem::path>& paths, const ScanOptions& options, const CancelFlag& cancel,
                const std::function<void(ScannedFile&&)>& each = {});

}  // namespace varve::notebooks
