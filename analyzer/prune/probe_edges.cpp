#include "analyzer/prune/probe_edges.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "core/base/text/safe_text.h"

namespace varve::prune {
namespace {

using usage::ProbedItem;
using usage::ProbedKind;
using usage::ProbeEdge;

// Nobody asks for these by name: they run before anything is imported.
bool starts_by_itself(ProbedKind kind) {
  return kind == ProbedKind::kKernel || kind == ProbedKind::kPython || kind == ProbedKind::kCommand;
}

std::string when_text(const ProbedItem& item) {
  switch (item.kind) {
    case ProbedKind::kImport:
      return fmt::format("when {} is imported", item.name);
    case ProbedKind::kEntryPoint:
      return fmt::format("when its entry point {} is loaded", item.name);
    case ProbedKind::kKernel:
      return fmt::format("the kernel {} loads it when it starts", item.name);
    case ProbedKind::kPython:
      return fmt::format("/{} loads it at each start", item.name);
    case ProbedKind::kCommand:
      return "the image's command loads it when it starts";
    default:
      return fmt::format("when its script {} runs", item.name);
  }
}

EdgeKind kind_of(ProbeEdge::Kind kind) {
  return kind == ProbeEdge::Kind::kLoads   ? EdgeKind::kLoads
         : kind == ProbeEdge::Kind::kTries ? EdgeKind::kTries
                                           : EdgeKind::kRuns;
}

std::string edge_text(const ProbeEdge& edge, const ProbedItem& item) {
  const auto what = edge.to.empty() ? "files of " + edge.to_distribution : edge.to;
  return fmt::format("{} {} {}", edge.kind == ProbeEdge::Kind::kTries ? "looks for" : "loads", what, when_text(item));
}

// Two ascending lists into one, each name once.
void merge_into(std::vector<std::string>& names, const std::set<std::string>& more) {
  if (more.empty()) return;
  std::vector<std::string> merged;
  std::ranges::set_union(names, more, std::back_inserter(merged));
  names = std::move(merged);
}

}  // namespace

void add_probe_edges(const usage::Probe& probe, const Nodes& nodes, Graph& graph) {
  for (const auto& edge : probe.edges) {
    const auto& item = probe.items.at(edge.item);
    if (starts_by_itself(item.kind)) continue;
    for (const auto from : nodes.named(item.distribution))
      for (const auto to : nodes.named(edge.to_distribution))
        if (from != to)
          graph.edges.push_back(
              {.from = from, .to = to, .kind = kind_of(edge.kind), .soft = false, .text = edge_text(edge, item)});
  }
}

std::vector<Root> probe_roots(const usage::Probe& probe, const Nodes& nodes) {
  std::vector<Root> roots;
  for (const auto& edge : probe.edges) {
    const auto& item = probe.items.at(edge.item);
    if (!starts_by_itself(item.kind)) continue;
    for (const auto node : nodes.named(edge.to_distribution))
      roots.push_back({.node = node, .reason = {.kind = "started", .by = item.name, .text = when_text(item)}});
  }
  return roots;
}

ImportClosure::ImportClosure(const usage::Probe& probe) {
  for (const auto& edge : probe.edges) {
    const auto& item = probe.items.at(edge.item);
    if (edge.kind != ProbeEdge::Kind::kLoads || item.kind != ProbedKind::kImport) continue;
    by_module_[item.name].insert(edge.to_distribution);
    if (!item.distribution.empty()) by_distribution_[item.distribution].insert(edge.to_distribution);
  }
}

void ImportClosure::close(usage::NotebookImports& notebook) const {
  std::set<std::string> loaded;
  for (const auto& module : notebook.modules) {
    // `import a.b.c` runs a and a.b, too.
    for (std::string_view name = module;; name = name.substr(0, name.rfind('.'))) {
      if (const auto found = by_module_.find(name); found != by_module_.end())
        loaded.insert(found->second.begin(), found->second.end());
      if (name.find('.') == std::string_view::npos) break;
    }
  }
  merge_into(notebook.distributions, loaded);
}

void ImportClosure::close(usage::SessionUse& session) const {
  std::set<std::string> loaded;
  for (const auto& distribution : session.distributions)
    if (const auto found = by_distribution_.find(distribution); found != by_distribution_.end())
      loaded.insert(found->second.begin(), found->second.end());
  merge_into(session.distributions, loaded);
}

void ImportClosure::close(ForecastEvidence& evidence) const {
  for (auto& notebook : evidence.notebooks) close(notebook);
  for (auto& session : evidence.sessions) close(session);
}

std::string not_probed(const std::string& image) {
  return fmt::format(
      "Nothing of the image was started, so what libraries load besides what their records say is not known: "
      "`varve prune probe {}` finds it out, and the next plan knows it",
      printable(image));
}

}  // namespace varve::prune
