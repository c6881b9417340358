#pragma once
// The ELF gate: which needs of which files find nothing. Removing a library must not make this set larger.
#include <string>
#include <vector>

#include "analyzer/elf/loader.h"

namespace varve::elf {

struct Unresolved {
  std::string path;  // real path of the file
  std::string needed;
  auto operator<=>(const Unresolved&) const = default;
};

// Of all ELF files of the tree, by path and need. RPATHs are inherited along every way by which a file can be loaded;
// files of the same folder count as found.
std::vector<Unresolved> unresolved(const Loader& loader);

// Lines "usr/bin/x needs libz.so.1, which is not there any more" for needs that `after` does not find and `before` did,
// of files that both have. Needs whose file is new are compared as if it had been there: "… which is not there".
std::vector<std::string> newly_unresolved(const Loader& before, const Loader& after);

// Every file that one file of the tree can load or be run by: all matches of all its needs, and its interpreter. Real
// paths, each once. For closures.
std::vector<std::string> files_needed_by(const Loader& loader, std::string_view path);

}  // namespace varve::elf
