#include "indexer/internal/kept_layers.h"

#include <map>
#include <utility>

#include "core/base/text/image_path.h"

namespace varve::indexer {
namespace {

using index::FlatEntry;

std::string_view inode_of(std::string_view path, const FlatEntry& entry) {
  return entry.link_of.empty() ? path : std::string_view(entry.link_of);
}

// Which names an inode has is compared by the caller.
bool same_but_for_names(const FlatEntry& wanted, const FlatEntry& given) {
  if (wanted.link_of.empty() && given.link_of.empty()) return index::same_entry(wanted, given);
  auto left = wanted, right = given;
  left.link_of.clear();
  right.link_of.clear();
  return index::same_entry(left, right);
}

}  // namespace

KeptLayers::KeptLayers(index::FlatTree given, const index::FlatTree& tree, const index::Placement& placement)
    : given_(std::move(given)), tree_(tree) {
  std::unordered_set<std::string_view> replaced(placement.removed.begin(), placement.removed.end());
  for (const auto& file : placement.added) replaced.insert(file.path);
  std::map<std::string_view, std::vector<std::string_view>>
      inodes;  // of the tree, by the first name: the names that are left
  for (const auto& [path, entry] : tree_.entries) {
    if (entry.type != FileType::kDirectory && !replaced.contains(path)) inodes[inode_of(path, entry)].push_back(path);
  }
  // An inode below stays if all names it shall have are its names. Two inodes that were one there cannot both be it:
  // the first keeps it.
  std::unordered_set<std::string_view> kept;  // inodes of what is given
  for (const auto& [first, names] : inodes) {
    std::string_view below;
    bool same = true;
    for (const auto name : names) {
      const auto given = given_.entries.find(name);
      same = given != given_.entries.end() && same_but_for_names(tree_.entries.find(name)->second, given->second);
      if (!same) break;
      const auto inode = inode_of(given->first, given->second);
      if (below.empty()) below = inode;
      same = below == inode;
      if (!same) break;
    }
    if (same && kept.insert(below).second) stays_.insert(names.begin(), names.end());
  }
}

bool KeptLayers::gives_directory(std::string_view path, const FlatEntry& wanted) const {
  const auto given = given_.entries.find(path);
  return given != given_.entries.end() && !given->second.implied && index::same_entry(wanted, given->second);
}

std::vector<std::string> KeptLayers::hidden(const std::unordered_set<std::string_view>& survives) const {
  std::vector<std::string> paths;
  for (const auto& [path, entry] : given_.entries) {
    if (path.empty() || survives.contains(path)) continue;
    const auto parent = parent_of(path);
    // Where the parent is no directory any more, or gone, that hides it.
    const auto in_tree = tree_.entries.find(parent);
    const bool parent_stays =
        parent.empty() ||
        (survives.contains(parent) && (in_tree == tree_.entries.end() || in_tree->second.type == FileType::kDirectory));
    if (parent_stays) paths.push_back(path);
  }
  return paths;
}

}  // namespace varve::indexer
