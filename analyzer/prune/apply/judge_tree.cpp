#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/base/text/image_path.h"

#include "analyzer/prune/apply/gates.h"
#include "analyzer/prune/apply/internal/retimed_files.h"

namespace varve::prune {
namespace {

constexpr std::size_t kMaxTreeFindings = 1000;
using Names = std::set<std::string_view>;

// Folders that hold something, all of which was removed.
Names emptied_folders(const index::FlatTree& before, const Names& removed, const Names& added) {
  Names holding, touched;
  const auto add_parents = [](std::string_view path, Names& names) {
    while (!path.empty() && names.insert(path = parent_of(path)).second) {
    }
  };
  for (const auto& [path, entry] : before.entries)
    if (!path.empty() && entry.type != FileType::kDirectory && !removed.contains(path)) add_parents(path, holding);
  for (const auto path : added) add_parents(path, holding);
  for (const auto path : removed) add_parents(path, touched);
  // An empty folder of before that nobody removed keeps its parents.
  Names parents;
  for (const auto& [path, entry] : before.entries)
    if (!path.empty()) parents.insert(parent_of(path));
  for (const auto& [path, entry] : before.entries)
    if (!path.empty() && entry.type == FileType::kDirectory && !parents.contains(path))
      holding.insert(path), add_parents(path, holding);
  Names emptied;
  std::ranges::set_difference(touched, holding, std::inserter(emptied, emptied.end()));
  return emptied;
}

// The names that an inode has left, by the name it had first.
std::map<std::string_view, std::string_view> first_names_left(const index::FlatTree& before, const Names& removed) {
  std::map<std::string_view, std::string_view> first;
  for (const auto& [path, entry] : before.entries) {
    if (removed.contains(path)) continue;
    first.try_emplace(entry.link_of.empty() ? std::string_view(path) : std::string_view(entry.link_of), path);
  }
  return first;
}

void compare_added(const index::AddedFile& added, const index::FlatTree& after, GateResult& result) {
  const auto found = after.entries.find(added.path);
  if (found == after.entries.end())
    return result.findings.push_back(fmt::format("{}: it should have been added", added.path));
  const auto& entry = found->second;
  if (entry.type != FileType::kRegular || entry.size != added.content.size() || entry.mode != added.mode ||
      (entry.size != 0 && entry.content_digest != digest_of(as_bytes(added.content))))
    result.findings.push_back(fmt::format("{}: it is not the file that was to be added", added.path));
}

}  // namespace

void judge_tree(const index::FlatTree& before, const index::FlatTree& after, const TreeChange& change,
                GateResult& result, const TimesRule& times, const index::FileSource* old_files) {
  const Names removed(change.removed.begin(), change.removed.end());
  Names added;
  for (const auto& file : change.added) added.insert(file.path);
  const auto emptied = emptied_folders(before, removed, added);
  const auto first_left = first_names_left(before, removed);
  std::uint64_t same = 0, unknown = 0;
  internal::RetimedFiles retimed(before, after, times);
  const auto report = [&](std::string text) {
    if (result.findings.size() < kMaxTreeFindings) result.findings.push_back(std::move(text));
  };
  for (const auto& [path, old_entry] : before.entries) {
    if (added.contains(path)) continue;
    const auto found = after.entries.find(path);
    if (removed.contains(path) || emptied.contains(path)) {
      if (found != after.entries.end()) report(fmt::format("{}: it was to go and is there", path));
      continue;
    }
    if (found == after.entries.end()) {
      report(fmt::format("{}: it is not there", path));
      continue;
    }
    auto expected = old_entry;
    const auto first =
        first_left.at(expected.link_of.empty() ? std::string_view(path) : std::string_view(expected.link_of));
    expected.link_of = first == path ? std::string() : std::string(first);
    std::string why;
    if (!retimed.allows(path, expected, found->second, why)) {
      report(fmt::format("{}: {}", path, why));
    } else {
      ++same;
      unknown += expected.type == FileType::kRegular && expected.size != 0 && expected.content_digest == Digest();
    }
  }
  for (const auto& [path, entry] : after.entries)
    if (!before.entries.contains(path) && !added.contains(path)) report(fmt::format("{}: it is new", path));
  for (const auto& file : change.added) compare_added(file, after, result);
  retimed.check_bytecode(old_files, report);
  result.detail = fmt::format("{} entries are as they were, {} removed with {} folders, {} added, {} differ", same,
                              removed.size(), emptied.size(), added.size(), result.findings.size()) +
                  retimed.summary();
  if (unknown != 0)
    result.detail += fmt::format("; {} files are mostly holes, and their content is not compared", unknown);
}

}  // namespace varve::prune
