#include <string>
#include <unordered_set>

#include "analyzer/compare/internal/parts.h"
#include "core/index/merge/bytecode.h"

namespace varve::compare {
namespace {

using index::FlatEntry;

std::string_view type_name(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "a file";
    case FileType::kDirectory:
      return "a folder";
    case FileType::kSymlink:
      return "a link";
    default:
      return "a device, pipe or socket";
  }
}

std::uint64_t bytes_of(const FlatEntry& entry) { return entry.link_of.empty() ? entry.size : 0; }

class FileComparer {
 public:
  FileComparison compare(const index::FlatTree& before, const index::FlatTree& after) {
    auto old = before.entries.begin();
    auto now = after.entries.begin();
    while (old != before.entries.end() || now != after.entries.end()) {
      const int order = old == before.entries.end()  ? 1
                        : now == after.entries.end() ? -1
                                                     : old->first.compare(now->first);
      if (order < 0) {
        gone(*old++);
      } else if (order > 0) {
        came(*now++);
      } else {
        both(old->first, old->second, now->second);
        ++old, ++now;
      }
    }
    count_content(before, after);
    return std::move(result_);
  }

 private:
  using Entry = std::pair<const std::string, FlatEntry>;

  void gone(const Entry& entry) {
    if (entry.second.type != FileType::kDirectory) note(entry.first, FileChange::kRemoved, &entry.second, nullptr, "");
  }
  void came(const Entry& entry) {
    if (entry.second.type != FileType::kDirectory) note(entry.first, FileChange::kAdded, nullptr, &entry.second, "");
  }

  void both(const std::string& path, const FlatEntry& old, const FlatEntry& now) {
    if (old.type != now.type)
      return note(path, FileChange::kContent, &old, &now,
                  fmt::format("{} instead of {}", type_name(now.type), type_name(old.type)));
    if (old.size != now.size || old.content_digest != now.content_digest)
      return note(path, FileChange::kContent, &old, &now, "");
    if (old.symlink_target != now.symlink_target)
      return note(path, FileChange::kContent, &old, &now,
                  fmt::format("leads to {:.200} instead of {:.200}", now.symlink_target, old.symlink_target));
    std::string why;
    if (index::same_entry(old, now, &why)) {
      if (old.type != FileType::kDirectory) ++result_.unchanged;
      return;
    }
    auto same_time = now;
    same_time.mtime_seconds = old.mtime_seconds;
    same_time.mtime_nanoseconds = old.mtime_nanoseconds;
    const bool only_time = index::same_entry(old, same_time, &why);
    if (only_time && old.type == FileType::kDirectory) return;  // whatever was put into it changed that
    note(path, only_time ? FileChange::kTime : FileChange::kAttributes, &old, &now, only_time ? "" : why);
  }

  void note(const std::string& path, FileChange change, const FlatEntry* old, const FlatEntry* now,
            std::string detail) {
    auto& count = result_.counts[change];
    ++count.files;
    count.bytes += now != nullptr ? bytes_of(*now) : bytes_of(*old);
    result_.changed.push_back({.path = path,
                               .change = change,
                               .bytes_before = old != nullptr ? old->size : 0,
                               .bytes_after = now != nullptr ? now->size : 0,
                               .detail = std::move(detail)});
  }

  void count_content(const index::FlatTree& before, const index::FlatTree& after) {
    std::unordered_set<Digest> known;
    for (const auto& [path, entry] : before.entries) {
      if (entry.type == FileType::kRegular && entry.content_digest != Digest()) known.insert(entry.content_digest);
    }
    for (const auto& [path, entry] : after.entries) {
      if (entry.type != FileType::kRegular || !entry.link_of.empty()) continue;
      result_.content_bytes += entry.size;
      if (known.contains(entry.content_digest))
        result_.shared_content_bytes += entry.size;
      else if (is_compiled_again(path, entry, before, after))
        result_.bytecode_bytes += entry.size;
    }
  }

  static bool is_compiled_again(const std::string& path, const FlatEntry& entry, const index::FlatTree& before,
                                const index::FlatTree& after) {
    const auto source = index::source_of_bytecode(path);
    if (source.empty()) return false;
    const auto old = before.entries.find(path);
    const auto old_source = before.entries.find(source), new_source = after.entries.find(source);
    return old != before.entries.end() && old->second.size == entry.size && old_source != before.entries.end() &&
           new_source != after.entries.end() && new_source->second.content_digest != Digest() &&
           old_source->second.content_digest == new_source->second.content_digest;
  }

  FileComparison result_;
};

}  // namespace

std::string_view file_change_name(FileChange change) {
  switch (change) {
    case FileChange::kAdded:
      return "added";
    case FileChange::kRemoved:
      return "removed";
    case FileChange::kContent:
      return "content";
    case FileChange::kAttributes:
      return "attributes";
    case FileChange::kTime:
      return "time";
  }
  return "";
}

FileComparison compare_files(const index::FlatTree& before, const index::FlatTree& after) {
  return FileComparer().compare(before, after);
}

}  // namespace varve::compare
