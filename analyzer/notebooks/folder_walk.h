#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "analyzer/notebooks/file_kind.h"
#include "core/base/threads/cancel.h"

namespace varve::notebooks {

struct FoundFile {
  std::filesystem::path path;
  std::filesystem::path root;  // the given folder that it was found in; its own folder if it was given itself
  FileKind kind = FileKind::kOther;
};

struct WalkResult {
  std::uint64_t skipped = 0;  // files that are neither notebooks nor scripts nor archives
};

// Calls `found` for each notebook, script and archive at and below the given paths, in byte order of their paths, each
// once. Links to folders are not followed (those given are), links to files are. Folders of is_passed_over() and
// virtual environments are left out, unless given. What cannot be read goes to `problem` (path, one line) and the walk
// goes on. Memory: the names of the folders from the root to the present one.
WalkResult walk(const std::vector<std::filesystem::path>& paths, const CancelFlag& cancel,
                const std::function<void(FoundFile&&)>& found,
                const std::function<void(const std::filesystem::path&, std::string&&)>& problem);

}  // namespace varve::notebooks
