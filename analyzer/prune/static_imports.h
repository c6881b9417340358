#pragma once
// What the modules of distributions import, read from their text: nothing is run. A probe and heard sessions know more
// of what is loaded; this knows what no start of theirs came by.
#include <string>
#include <vector>

#include "analyzer/prune/closure.h"
#include "analyzer/prune/nodes.h"
#include "core/base/work.h"
#include "core/index/file_source.h"

namespace varve::prune {

// Adds an edge from each distribution to all that importing it loads: followed from the modules that code imports it
// by, over imports that are always reached, or in a `try` that lives without them. What its other modules, functions
// and conditions name is a soft edge. Tests and examples of a distribution are not looked at. `work` counts bytes of
// text. Returns what is not known, in sentences. Throws what the source throws.
std::vector<std::string> add_static_imports(const index::FileSource& files, const Nodes& nodes, const Work& work,
                                            Graph& graph);

}  // namespace varve::prune
