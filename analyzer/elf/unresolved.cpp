#include "analyzer/elf/unresolved.h"

#include <algorithm>

#include <fmt/format.h>

namespace varve::elf {

std::vector<Unresolved> unresolved(const Loader& loader) {
  NeedsClosure closure(loader);
  for (const auto& [path, entry] : loader.tree().entries)
    if (entry.elf != nullptr && entry.link_of.empty()) closure.add(path);
  closure.run();
  std::vector<Unresolved> list;
  for (const auto& [path, needs] : closure.needs())
    for (const auto& need : needs)
      if (need.matches.empty()) list.push_back({.path = path, .needed = need.needed});
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

std::vector<std::string> newly_unresolved(const Loader& before, const Loader& after) {
  const auto old_ones = unresolved(before);
  std::vector<std::string> lines;
  for (const auto& one : unresolved(after)) {
    if (std::ranges::binary_search(old_ones, one)) continue;
    const bool was_there = before.tree().entries.contains(one.path);
    lines.push_back(
        fmt::format("{} needs {}, which is not there{}", one.path, one.needed, was_there ? " any more" : ""));
  }
  return lines;
}

std::vector<std::string> files_needed_by(const Loader& loader, std::string_view path) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& file) {
    if (!file.empty() && std::ranges::find(files, file) == files.end()) files.push_back(file);
  };
  for (const auto& need : loader.resolve(path))
    for (const auto& match : need.matches) add(match);
  add(loader.interpreter(path));
  return files;
}

}  // namespace varve::elf
