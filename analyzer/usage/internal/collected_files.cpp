#include "analyzer/usage/internal/collected_files.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>

namespace varve::usage {

void CollectedFiles::add(const FoundSpool& found, const SpoolFile& file, std::uint64_t read_bytes, bool ended) {
  bool is_over = false;
  if (file.start() && read_bytes == file.size())
    is_over = ended || file.modified() + kAbandonedSeconds < std::int64_t(std::time(nullptr));
  if (is_over && ended && !found.folder_session.empty() && is_starter(*file.start()))
    over_.insert(found.folder_session);
  files_.push_back({found.path, file.identity(), found.folder_session, is_over});
}

void CollectedFiles::add(CollectedFiles&& other) {
  std::move(other.files_.begin(), other.files_.end(), std::back_inserter(files_));
  over_.merge(other.over_);
  other = {};
}

bool CollectedFiles::any_is_over() const {
  return std::any_of(files_.begin(), files_.end(), [&](const File& file) { return may_go(file); });
}

std::uint64_t CollectedFiles::remove(const std::vector<std::filesystem::path>& spools) const {
  std::uint64_t removed = 0;
  for (const auto& file : files_)
    if (may_go(file) && remove_spool(file.path, file.identity)) ++removed;
  // Only now: the name of the folder is that of the session, whose files are gone. What else is in there stays.
  for (const auto& file : files_)
    if (over_.contains(file.folder_session)) ::rmdir(file.path.parent_path().c_str());
  for (const auto& spool : spools) {
    std::error_code error;
    if (std::filesystem::is_directory(spool, error))
      remove_empty_session_folders(spool, std::int64_t(std::time(nullptr)));
  }
  return removed;
}

}  // namespace varve::usage
