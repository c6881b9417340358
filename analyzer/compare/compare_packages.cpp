#include "analyzer/compare/internal/parts.h"

#include <algorithm>
#include <utility>

#include "core/base/text/image_path.h"

namespace varve::compare {
namespace {

using packages::Distribution;
using packages::Inventory;

struct Installed {
  std::vector<std::string> versions;
  std::uint64_t bytes = 0;
  bool gpu = false;
  bool python = false;
};
using Key = std::pair<std::string, packages::Source>;

// A copy inside another distribution goes with that one.
std::map<Key, Installed> installed_in(const Inventory& inventory) {
  std::map<Key, Installed> installed;
  for (const auto& distribution : inventory.distributions) {
    if (!distribution.vendored_by.empty()) continue;
    auto& one = installed[{distribution.normalized, distribution.source}];
    one.versions.push_back(distribution.version);
    one.bytes += distribution.bytes;
    one.gpu = one.gpu || distribution.gpu;
    one.python = one.python || is_python(distribution);
  }
  for (auto& [key, one] : installed) std::ranges::sort(one.versions);
  return installed;
}

// Bytecode holds the time of its source, so it differs wherever that was installed again; so does the list of what was
// installed.
bool says_nothing_of_content(std::string_view path) {
  const auto name = name_of(path);
  return path.ends_with(".pyc") || name == "RECORD" || name == "INSTALLER" || name == "REQUESTED" ||
         name == "direct_url.json";
}

// Owner -> files of it that are not in the other image under the same path, by their path below its site folder:
// another Python is another folder.
using OwnFiles = std::map<Key, std::map<std::string, std::string>>;

OwnFiles changed_files(const FileComparison& files, const packages::Inventory& inventory, const index::FlatTree& tree,
                       FileChange one_sided) {
  OwnFiles found;
  for (const auto& file : files.changed) {
    if ((file.change != FileChange::kContent && file.change != one_sided) || says_nothing_of_content(file.path))
      continue;
    const auto entry = tree.entries.find(file.path);
    if (entry == tree.entries.end() || entry->second.type == FileType::kDirectory) continue;
    const auto content = entry->second.type == FileType::kSymlink ? "-> " + entry->second.symlink_target
                                                                  : entry->second.content_digest.to_string();
    for (const auto owner : inventory.owners_of_path(file.path)) {
      const auto& distribution = inventory.distributions[owner];
      if (!distribution.vendored_by.empty()) continue;
      const auto site = distribution.site.empty() ? std::string() : distribution.site + "/";
      const bool below = !site.empty() && file.path.starts_with(site);
      found[{distribution.normalized, distribution.source}][below ? file.path.substr(site.size()) : "/" + file.path] =
          content;
    }
  }
  return found;
}

std::map<Key, std::uint64_t> count_changed(const OwnFiles& before, const OwnFiles& after) {
  static const std::map<std::string, std::string> kNone;
  std::map<Key, std::uint64_t> counts;
  for (const auto& [owner, old] : before) {
    const auto found = after.find(owner);
    const auto& now = found == after.end() ? kNone : found->second;
    for (const auto& [path, content] : old) {
      const auto there = now.find(path);
      if (there == now.end() || there->second != content) ++counts[owner];
    }
  }
  for (const auto& [owner, now] : after) {
    const auto found = before.find(owner);
    for (const auto& [path, content] : now) {
      if (found == before.end() || !found->second.contains(path)) ++counts[owner];
    }
  }
  return counts;
}

}  // namespace

std::string_view package_change_name(PackageChange change) {
  switch (change) {
    case PackageChange::kAdded:
      return "added";
    case PackageChange::kRemoved:
      return "removed";
    case PackageChange::kChanged:
      return "changed";
    case PackageChange::kRebuilt:
      return "rebuilt";
  }
  return "";
}

bool is_python(const Distribution& distribution) { return distribution.record != "var/lib/dpkg/status"; }

PackageComparison compare_packages(const Side& before, const Side& after, const FileComparison& files) {
  auto old = installed_in(before.inventory);
  auto changed = count_changed(changed_files(files, before.inventory, before.tree, FileChange::kRemoved),
                               changed_files(files, after.inventory, after.tree, FileChange::kAdded));
  PackageComparison result;
  const auto note = [&](const Key& key, PackageChange change, const Installed& was, const Installed& is) {
    result.changed.push_back({.name = key.first,
                              .source = key.second,
                              .change = change,
                              .before = was.versions,
                              .after = is.versions,
                              .bytes_before = was.bytes,
                              .bytes_after = is.bytes,
                              .changed_files = changed[key],
                              .gpu = was.gpu || is.gpu,
                              .python = was.python || is.python});
  };
  for (const auto& [key, is] : installed_in(after.inventory)) {
    const auto found = old.find(key);
    if (found == old.end()) {
      note(key, PackageChange::kAdded, {}, is);
      continue;
    }
    if (found->second.versions != is.versions) {
      note(key, PackageChange::kChanged, found->second, is);
    } else if (changed.contains(key)) {
      note(key, PackageChange::kRebuilt, found->second, is);
    } else {
      ++result.unchanged[key.second];
    }
    old.erase(found);
  }
  for (const auto& [key, was] : old) note(key, PackageChange::kRemoved, was, {});
  std::ranges::sort(result.changed, {}, [](const ComparedPackage& one) { return std::pair(one.name, one.source); });
  return result;
}

}  // namespace varve::compare
