#include "analyzer/packages/file_table.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/text/image_path.h"
#include "core/index/merge/tree.h"

namespace varve::packages {
namespace {

constexpr std::size_t kMaxResolvedBytes = 16 * 1024;  // of a path while links are put in

}  // namespace

FileTable::FileTable(const index::FileSource& source) {
  const auto& entries = source.tree().entries;
  if (entries.size() >= 0xFFFFFFFFu) fail<Unsupported>("more files than can be counted");
  rows_.reserve(entries.size());
  for (const auto& [path, file] : entries)
    if (!path.empty()) rows_.emplace_back(&path, &file);
}

bool FileTable::is_content(FileId id) const {
  const auto type = file(id).type;
  return type == FileType::kRegular || type == FileType::kSymlink;
}

FileId FileTable::lower_bound(std::string_view path) const {
  return FileId(std::lower_bound(rows_.begin(), rows_.end(), path,
                                 [](const auto& row, std::string_view wanted) { return *row.first < wanted; }) -
                rows_.begin());
}

std::optional<FileId> FileTable::find(std::string_view path) const {
  const auto id = lower_bound(path);
  if (id == size() || this->path(id) != path) return std::nullopt;
  return id;
}

std::optional<std::string> FileTable::real_path(std::string_view path, bool follow_last) const {
  std::string rest(path);
  std::string at;
  int links = 0;
  for (std::size_t from = 0; from < rest.size();) {
    const auto end = std::min(rest.find('/', from), rest.size());
    const auto name = rest.substr(from, end - from);
    from = end + 1;
    if (name.empty() || name == ".") continue;
    if (name == "..") {
      at = std::string(parent_of(at));
      continue;
    }
    auto next = join_path(at, name);
    const bool last = from >= rest.size();
    const auto id = find(next);
    if (!id) {
      if (!last) return std::nullopt;
      return next;
    }
    const auto& row = file(*id);
    if (row.type == FileType::kSymlink && (!last || follow_last)) {
      if (++links > index::kMaxSymlinksFollowed) return std::nullopt;
      if (row.symlink_target.starts_with('/')) at.clear();
      rest = row.symlink_target + (last ? "" : "/" + rest.substr(from));
      if (rest.size() > kMaxResolvedBytes) return std::nullopt;
      from = 0;
      continue;
    }
    if (!last && row.type != FileType::kDirectory) return std::nullopt;
    at = std::move(next);
  }
  return at;
}

std::optional<FileId> FileTable::resolve(std::string_view path, bool follow_last) const {
  // Nearly always the name is there as it is, and then so are its parents, as folders.
  if (const auto id = find(path); id && (!follow_last || file(*id).type != FileType::kSymlink)) return id;
  const auto real = real_path(path, follow_last);
  return real ? find(*real) : std::nullopt;
}

std::optional<std::string> FileTable::real_folder(std::string_view path) const {
  auto real = real_path(path, true);
  if (!real) return std::nullopt;
  if (!real->empty()) {
    const auto id = find(*real);
    if (!id || !is_folder(*id)) return std::nullopt;
  }
  return real;
}

std::pair<FileId, FileId> FileTable::below(std::string_view folder) const {
  if (folder.empty()) return {0, size()};
  std::string bound(folder);
  bound += '/';
  const auto first = lower_bound(bound);
  bound.back() = '/' + 1;
  return {first, lower_bound(bound)};
}

}  // namespace varve::packages
