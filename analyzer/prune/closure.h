#pragma once
// What holds what: a plain graph, and the verdicts that follow from it. Pure: no clock, no file.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/prune/plan.h"

namespace varve::prune {

enum class EdgeKind : std::uint8_t {
  kRequires,
  kExtra,
  kConda,
  kDpkg,
  kImports,
  kEntryPoint,
  kScript,
  kElf,
  kSharesPath,
  kNamespace,
  kLoads,  // these three by what a probe saw: probe_edges.h
  kTries,
  kRuns
};
std::string_view edge_kind_name(EdgeKind kind);  // "requires" "extra" …

// Whoever keeps `from` as hot as it is keeps `to` so, too.
struct Edge {
  std::uint32_t from = 0, to = 0;
  EdgeKind kind = EdgeKind::kRequires;
  bool soft = false;  // only keeps `to` from being archived: what `from` may look for and does not need
  std::string text;   // of Reason::text, with `from` as its subject: "needs numpy>=1.26"
  bool operator==(const Edge&) const = default;
};

// Nodes are numbered from 0. Those from `distributions` on stand for an extra of a distribution ("requests[socks]").
struct Graph {
  struct Extra {
    std::uint32_t of = 0;  // the distribution
    std::string name;
  };
  std::uint32_t distributions = 0;
  std::vector<Extra> extras;
  std::vector<Edge> edges;

  std::uint32_t nodes() const { return distributions + std::uint32_t(extras.size()); }
};

struct Propagated {
  Verdict verdict = Verdict::kHot;
  std::optional<std::size_t>
      by;  // the edge that raised it; absent: it is so by itself. Following `from` of it never comes back
};

// `own`: by node, what each would be if it stood alone; an extra stands for nothing by itself (kArchived). Each comes
// out at least as hot as everything that needs it, by the shortest chain from what is so by itself. Throws CorruptData
// for an edge to a node that is none.
std::vector<Propagated> propagate(const Graph& graph, const std::vector<Verdict>& own);

}  // namespace varve::prune
