#pragma once
// Spool files that are kept somewhere else by now, and which of them may go.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "analyzer/usage/spool_file.h"

namespace varve::usage {

class CollectedFiles {
 public:
  // The file is kept elsewhere up to `read_bytes`; `ended`: its process said that it ended there or before.
  void add(const FoundSpool& found, const SpoolFile& file, std::uint64_t read_bytes, bool ended);
  void add(CollectedFiles&& other);

  // Those that no process will write to any more: they ended, were silent for a day, or what had started their session
  // told its end.
  bool any_is_over() const;
  // Removes these, the folders that are empty then, and returns how many files. What is kept elsewhere survives a power
  // cut by now.
  std::uint64_t remove(const std::vector<std::filesystem::path>& spools) const;

 private:
  struct File {
    std::filesystem::path path;
    SpoolFile::Identity identity;
    std::string folder_session;
    bool is_over = false;
  };
  bool may_go(const File& file) const { return file.is_over || over_.contains(file.folder_session); }

  std::vector<File> files_;
  std::set<std::string> over_;  // sessions whose end was told by what had started them: none of their processes lives
};

}  // namespace varve::usage
