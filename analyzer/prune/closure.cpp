#include "analyzer/prune/closure.h"

#include <array>
#include <span>

#include "core/base/errors.h"

namespace varve::prune {
namespace {

// Edges by the node they leave, in the order of the graph.
class Leaving {
 public:
  explicit Leaving(const Graph& graph) : first_(graph.nodes() + 1, 0), edges_(graph.edges.size()) {
    for (const auto& edge : graph.edges) {
      if (edge.from >= graph.nodes() || edge.to >= graph.nodes())
        fail<CorruptData>("closure: an edge from {} to {} of {} nodes", edge.from, edge.to, graph.nodes());
      ++first_[edge.from + 1];
    }
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    auto next = first_;
    for (std::size_t i = 0; i < graph.edges.size(); ++i) edges_[next[graph.edges[i].from]++] = i;
  }
  std::span<const std::size_t> of(std::uint32_t node) const {
    return {edges_.data() + first_[node], first_[node + 1] - first_[node]};
  }

 private:
  std::vector<std::size_t> first_, edges_;
};

}  // namespace

std::string_view edge_kind_name(EdgeKind kind) {
  constexpr std::array<std::string_view, 13> kNames{"requires",    "extra",  "conda", "dpkg",        "imports",
                                                    "entry-point", "script", "elf",   "shares-path", "namespace",
                                                    "loads",       "tries",  "runs"};
  return kNames.at(std::size_t(kind));
}

std::vector<Propagated> propagate(const Graph& graph, const std::vector<Verdict>& own) {
  if (own.size() != graph.nodes()) fail<CorruptData>("closure: {} verdicts for {} nodes", own.size(), graph.nodes());
  const Leaving leaving(graph);
  std::vector<Propagated> propagated(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) propagated[i].verdict = own[i];
  // Level by level, so that what is hot pulls first; within a level breadth first, so that chains are short.
  for (const auto level : {Verdict::kHot, Verdict::kWatch, Verdict::kCold}) {
    const bool last = level == Verdict::kCold;
    std::vector<std::uint32_t> queue;
    for (std::uint32_t i = 0; i < propagated.size(); ++i) {
      // Soft edges leave everything that is not archived, and all of it is known only now.
      if (propagated[i].verdict == level || (last && propagated[i].verdict < level)) queue.push_back(i);
    }
    for (std::size_t head = 0; head < queue.size(); ++head) {
      for (const auto number : leaving.of(queue[head])) {
        const auto& edge = graph.edges[number];
        if ((edge.soft && !last) || propagated[edge.to].verdict <= level) continue;
        propagated[edge.to] = {.verdict = level, .by = number};
        queue.push_back(edge.to);
      }
    }
  }
  return propagated;
}

}  // namespace varve::prune
