#pragma once
// Who needs whose shared libraries, and whose files are CUDA.
#include <string>
#include <vector>

#include "analyzer/cuda/rules.h"
#include "analyzer/elf/loader.h"
#include "analyzer/prune/closure.h"
#include "analyzer/prune/needs.h"
#include "analyzer/prune/nodes.h"

namespace varve::prune {

// Adds an edge from the owner of each file to the owners of every file that some state of the loader could take for
// what it needs. What belongs to nobody stays, so what it needs is added to `roots`. Returns what is not known, in
// sentences: files whose facts are not whole.
std::vector<std::string> add_elf_edges(const elf::Loader& loader, const Nodes& nodes, Graph& graph,
                                       std::vector<Root>& roots);

// Who owns a file of the selection: never colder than hot.
std::vector<Root> cuda_roots(const cuda::Selection& selection, const Nodes& nodes);

}  // namespace varve::prune
