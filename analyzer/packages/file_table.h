#pragma once
// The files of a source but for its root, under numbers, with the lookups that records need: their paths go through
// symlinked folders and climb out of site folders.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/index/file_source.h"

namespace varve::packages {

using FileId = std::uint32_t;

// "" joined with anything is that.

// Numbers are places in byte order of paths: what lies below a folder has consecutive ones. The source must outlive it.
// Not shared between threads.
class FileTable {
 public:
  explicit FileTable(const index::FileSource& source);

  FileId size() const { return FileId(rows_.size()); }
  std::string_view path(FileId id) const { return *rows_[id].first; }
  const index::FlatEntry& file(FileId id) const { return *rows_[id].second; }
  bool is_folder(FileId id) const { return file(id).type == FileType::kDirectory; }
  // What distributions own: regular files and symlinks.
  bool is_content(FileId id) const;

  // The name as it is.
  std::optional<FileId> find(std::string_view path) const;
  // Symlinks among the parents are followed inside the root, and the last part too if asked. "." and ".." are taken as
  // the system does.
  std::optional<FileId> resolve(std::string_view path, bool follow_last) const;
  // The real path of a folder; absent if there is none. "" is the root.
  std::optional<std::string> real_folder(std::string_view path) const;

  // Everything below a folder: [first, second). "" = all.
  std::pair<FileId, FileId> below(std::string_view folder) const;
  // Calls with each direct child of a folder, in order.
  template <typename Visit>
  void children(std::string_view folder, Visit&& visit) const {
    const auto [first, end] = below(folder);
    const auto prefix = folder.empty() ? 0 : folder.size() + 1;
    for (auto id = first; id < end;) {
      const auto slash = path(id).find('/', prefix);
      if (slash != std::string_view::npos) {
        id = below(path(id).substr(0, slash)).second;
        continue;
      }
      visit(id, path(id).substr(prefix));
      ++id;
    }
  }

 private:
  // Real path, which may name nothing; absent if a parent is missing, is no folder, or symlinks go round in circles.
  std::optional<std::string> real_path(std::string_view path, bool follow_last) const;
  FileId lower_bound(std::string_view path) const;

  std::vector<std::pair<const std::string*, const index::FlatEntry*>> rows_;
};

}  // namespace varve::packages
