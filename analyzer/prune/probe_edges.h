#pragma once
// What a probe of the image adds to a plan: edges and roots of its graph, and what notebooks and sessions need beyond
// what they name. Pure.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analyzer/prune/closure.h"
#include "analyzer/prune/forecast.h"
#include "analyzer/prune/needs.h"
#include "analyzer/prune/nodes.h"
#include "analyzer/usage/probe.h"

namespace varve::prune {

// Imports and entry points hold what they load and what they look for and the image has; scripts hold what they run.
// The probe must be of the nodes' image; a distribution that is no node is left out.
void add_probe_edges(const usage::Probe& probe, const Nodes& nodes, Graph& graph);

// What kernels, a start of Python and the image's command run: it is needed whatever anybody imports.
std::vector<Root> probe_roots(const usage::Probe& probe, const Nodes& nodes);

// What it takes to import something, by what a probe saw. The probe need not outlive it.
class ImportClosure {
 public:
  explicit ImportClosure(const usage::Probe& probe);

  // Adds to the distributions of a notebook all that importing its modules loads; to those of a session, which may
  // have named a distribution that it never loaded, what any import of these loads. Both stay ascending.
  void close(usage::NotebookImports& notebook) const;
  void close(usage::SessionUse& session) const;
  void close(ForecastEvidence& evidence) const;

 private:
  std::map<std::string, std::set<std::string>, std::less<>> by_module_;        // an imported name -> distributions
  std::map<std::string, std::set<std::string>, std::less<>> by_distribution_;  // one that has such names -> the same
};

// The sentence of Plan::unsure where nothing was probed; `image` as the user named it.
std::string not_probed(const std::string& image);

}  // namespace varve::prune
