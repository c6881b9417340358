#include "analyzer/usage/probe.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/base/errors.h"

namespace varve::usage {
namespace {

constexpr std::array<std::string_view, 8> kProbedKinds{"import", "entry-point", "script",           "kernel",
                                                       "python", "command",     "server-extension", "lab-extension"};

}  // namespace

std::string_view probed_kind_name(ProbedKind kind) { return kProbedKinds.at(std::size_t(kind)); }

ProbedKind probed_kind(std::string_view name) {
  const auto* const found = std::ranges::find(kProbedKinds, name);
  if (found == kProbedKinds.end()) fail<CorruptData>("'{:.40}' is no kind of what is probed", name);
  return ProbedKind(found - kProbedKinds.begin());
}

std::string_view probe_edge_name(ProbeEdge::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames{"loads", "tries", "runs"};
  return kNames.at(std::size_t(kind));
}

void sort_edges(std::vector<ProbeEdge>& edges) {
  std::ranges::sort(
      edges, {}, [](const ProbeEdge& edge) { return std::tie(edge.item, edge.kind, edge.to_distribution, edge.to); });
}

}  // namespace varve::usage
