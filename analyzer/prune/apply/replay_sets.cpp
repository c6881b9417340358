#include "analyzer/prune/apply/replay_sets.h"

#include <algorithm>
#include <map>

namespace varve::prune {

ImportSets replay_sets(usage::Database& database, const Digest& image, std::size_t at_most) {
  ImportSets result;
  std::map<std::vector<std::string>, ImportSet> distinct;
  database.notebooks(image, [&](usage::NotebookImports&& notebook) {
    if (!notebook.language.empty() && notebook.language != "python") return;
    result.notebooks += notebook.copies;
    if (notebook.modules.empty()) {
      result.covered += notebook.copies;
      return;
    }
    auto& set = distinct[notebook.modules];
    if (set.example.empty() || notebook.path < set.example) set.example = std::move(notebook.path);
    set.notebooks += notebook.copies;
  });
  for (auto& [modules, set] : distinct) {
    set.modules = modules;
    result.sets.push_back(std::move(set));
  }
  // By modules already; those that most notebooks import come first.
  std::stable_sort(result.sets.begin(), result.sets.end(),
                   [](const ImportSet& a, const ImportSet& b) { return a.notebooks > b.notebooks; });
  if (result.sets.size() > at_most) {
    result.left_out = result.sets.size() - at_most;
    result.sets.resize(at_most);
  }
  for (const auto& set : result.sets) result.covered += set.notebooks;
  return result;
}

}  // namespace varve::prune
