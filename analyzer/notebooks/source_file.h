#pragma once
// One notebook or script from its bytes to what is found in it.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/file_kind.h"
#include "analyzer/notebooks/local_modules.h"
#include "analyzer/notebooks/notebook_reader.h"
#include "analyzer/notebooks/scan.h"

namespace varve::notebooks {

// How sure it is that a top-level name lies beside the file.
using LocalLookup = std::function<Local(std::string_view name)>;

struct SourceOutcome {
  bool readable = false;  // it is what its name says; else `file` has only its path
  ScannedFile file;
  std::vector<std::string> problems;  // one line each
  std::uint64_t bytes = 0;
};

// Reads files one after the other, each given in blocks. Not shared between threads.
class SourceFileReader {
 public:
  explicit SourceFileReader(const ScanOptions& options);
  void start(FileKind kind, std::string path);
  // False if that is more than may be read; then that is the file's problem.
  bool has_room(std::uint64_t bytes);
  // False when the rest is not wanted.
  bool feed(std::string_view block);
  SourceOutcome finish(const LocalLookup& local);

 private:
  void finish_notebook();
  void decode_script();
  void finish_script();
  void add_cell(std::string_view text, std::uint32_t number, const std::string& language);
  void read_python_cells();
  void mark_local(const LocalLookup& local);

  const ScanOptions& options_;
  NotebookReader notebook_;
  std::string text_;  // of the file
  FileKind kind_ = FileKind::kOther;
  SourceOutcome outcome_;
  std::vector<Cell> python_;
  std::vector<std::pair<std::string, Local>> written_;  // modules that cells write into files
};

}  // namespace varve::notebooks
