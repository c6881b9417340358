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
};
// Packages of the operating system, and what has a .pth or .start file that each start of Python reads.
std::vector<Root> built_in_roots(const Nodes& nodes, const index::FlatTree::Entries& files);
// What the image's config starts: the first word of entrypoint and command, looked for on its PATH.
std::vector<Root> started_roots(const Nodes& nodes, const index::FlatTree::Entries& files,
                                const std::vector<std::string>& commands, const std::string& path);

}  // namespace varve::prune
