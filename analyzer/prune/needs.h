#pragma once
// Gathers what holds what in one image: from metadata, from who imported whom, from files that are shared or lie inside
// each other's packages. Each edge and why it is there: docs/guide/prune-plan.md. ELF needs: elf_needs.h.
#include <string>
#include <vector>

#include "analyzer/prune/closure.h"
#include "analyzer/prune/nodes.h"
#include "analyzer/usage/snapshot.h"
#include "core/index/merge/flat_tree.h"

namespace varve::prune {

// Who loads entry points of a group: known where the group's name does not begin with the loader's.
struct GroupConsumer {
  std::string group;         // glob: "pytest11"
  std::string distribution;  // normalised
};
const std::vector<GroupConsumer>& known_group_consumers();

// Requires-Dist with markers and extras, conda and dpkg dependencies, entry points, scripts, shared modules,
// namespaces.
Graph installed_graph(const Nodes& nodes, const index::FlatTree::Entries& files,
                      const std::vector<GroupConsumer>& more_consumers);

// Adds who was seen importing whom.
void add_import_edges(const usage::Snapshot& snapshot, const Nodes& nodes, Graph& graph);

// Kept for a reason that is neither use nor another distribution.
struct Root {
  std::uint32_t node = 0;
  Reason reason;
  Verdict least = Verdict::kHot;  // at least as hot as this
};
// Who has entry points of which it is not known who loads them: watched, as the plugins would be gone without a word.
std::vector<Root> unknown_group_roots(const Nodes& nodes, const std::vector<GroupConsumer>& more_consumers);
// Packages of the operating system.
std::vector<Root> system_roots(const Nodes& nodes);

}  // namespace varve::prune
