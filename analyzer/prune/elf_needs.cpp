#include "analyzer/prune/elf_needs.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "core/base/text/image_path.h"
#include "core/base/text/safe_text.h"

namespace varve::prune {
namespace {

// One line for many needs of the same two.
struct Pair {
  std::string example;
  std::size_t count = 0;
  void add(const std::string& path, const std::string& needed) {
    if (count++ == 0) example = fmt::format("{} needs {}", name_of(path), name_of(needed));
  }
  std::string text() const { return count == 1 ? example : fmt::format("{}, and {} more such", example, count - 1); }
};

std::set<std::uint32_t> nodes_of(const Nodes& nodes, std::string_view path) {
  std::set<std::uint32_t> found;
  for (const auto owner : nodes.inventory().owners_of_path(path)) {
    if (const auto node = nodes.of(owner)) found.insert(*node);
  }
  return found;
}

}  // namespace

std::vector<std::string> add_elf_edges(const elf::Loader& loader, const Nodes& nodes, Graph& graph,
                                       std::vector<Root>& roots) {
  elf::NeedsClosure closure(loader);
  std::size_t broken = 0;
  std::string example;
  for (const auto& [path, entry] : loader.tree().entries) {
    if (entry.elf == nullptr || !entry.link_of.empty()) continue;
    closure.add(path);
    if (!entry.elf->broken.empty() && broken++ == 0) example = fmt::format("{}: {}", path, entry.elf->broken);
  }
  closure.run();
  std::map<std::pair<std::uint32_t, std::uint32_t>, Pair> pairs;
  std::map<std::pair<std::uint32_t, std::string>, Pair> from_nobody;  // needed, by whose file
  std::map<std::string, std::set<std::uint32_t>, std::less<>> known;  // a library is needed by many
  for (const auto& [path, needs] : closure.needs()) {
    const auto from = nodes_of(nodes, path);
    for (const auto& need : needs) {
      for (const auto& match : need.matches) {
        auto found = known.find(match);
        if (found == known.end()) found = known.emplace(match, nodes_of(nodes, match)).first;
        for (const auto to : found->second) {
          if (from.contains(to)) continue;
          if (from.empty()) from_nobody[{to, path}].add(path, need.needed);
          for (const auto one : from) pairs[{one, to}].add(path, need.needed);
        }
      }
    }
  }
  for (const auto& [pair, what] : pairs)
    graph.edges.push_back(
        {.from = pair.first, .to = pair.second, .kind = EdgeKind::kElf, .soft = false, .text = what.text()});
  for (const auto& [key, what] : from_nobody)
    roots.push_back({.node = key.first,
                     .reason = {.kind = "unowned-file",
                                .by = key.second,
                                .text = fmt::format("{}; the file belongs to no package, so it stays", what.text())}});
  if (broken == 0) return {};
  return {fmt::format("What {} ELF {} {} is not wholly known ({})", broken, broken == 1 ? "file" : "files",
                      broken == 1 ? "needs" : "need", visible(example, 300))};
}

std::vector<Root> cuda_roots(const cuda::Selection& selection, const Nodes& nodes) {
  struct Owned {
    std::string path, rule;
    std::size_t count = 0;
  };
  std::map<std::uint32_t, Owned> owned;
  for (const auto& [path, kept] : selection.files) {
    // Equal in every image, but nobody's CUDA: loader configuration, and links on the way such as /lib.
    if (kept.rule.starts_with("config ") || kept.rule.starts_with("R4 name of ")) continue;
    for (const auto node : nodes_of(nodes, path)) {
      auto& one = owned[node];
      if (one.count++ == 0) {
        one.path = path;
        one.rule = kept.rule;
      }
    }
  }
  std::vector<Root> roots;
  for (const auto& [node, what] : owned)
    roots.push_back({.node = node,
                     .reason = {.kind = "cuda",
                                .by = what.rule,
                                .text = fmt::format("{} CUDA {} of it, {} first: they never change and never go",
                                                    what.count, what.count == 1 ? "file" : "files", what.path)}});
  return roots;
}

}  // namespace varve::prune
