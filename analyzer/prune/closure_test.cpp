#include "analyzer/prune/closure.h"

#include <gtest/gtest.h>

#include <random>

#include "core/base/errors.h"

namespace varve::prune {
namespace {

constexpr auto H = Verdict::kHot;
constexpr auto W = Verdict::kWatch;
constexpr auto C = Verdict::kCold;
constexpr auto A = Verdict::kArchived;

Graph graph_of(std::uint32_t nodes, std::vector<Edge> edges) {
  Graph graph;
  graph.distributions = nodes;
  graph.edges = std::move(edges);
  return graph;
}

Edge edge(std::uint32_t from, std::uint32_t to, bool soft = false) {
  return {.from = from, .to = to, .kind = EdgeKind::kRequires, .soft = soft, .text = "needs it"};
}

std::vector<Verdict> verdicts(const std::vector<Propagated>& propagated) {
  std::vector<Verdict> out;
  for (const auto& one : propagated) out.push_back(one.verdict);
  return out;
}

TEST(Closure, WhatIsNeededIsAsHotAsWhatNeedsIt) {
  const auto propagated = propagate(graph_of(5, {edge(0, 1), edge(1, 2), edge(3, 4)}), {H, C, C, W, C});
  EXPECT_EQ(verdicts(propagated), (std::vector{H, H, H, W, W}));
  EXPECT_EQ(propagated[2].by, 1u);
  EXPECT_FALSE(propagated[0].by);
}

TEST(Closure, WhatOnlyColdOnesNeedStaysCold) {
  EXPECT_EQ(verdicts(propagate(graph_of(3, {edge(0, 1), edge(2, 1)}), {C, C, A})), (std::vector{C, C, A}));
  EXPECT_EQ(verdicts(propagate(graph_of(2, {edge(0, 1)}), {A, A})), (std::vector{A, A}));
  EXPECT_EQ(verdicts(propagate(graph_of(2, {edge(0, 1)}), {C, A})), (std::vector{C, C}));
}

TEST(Closure, ASoftEdgeOnlyKeepsFromBeingArchived) {
  EXPECT_EQ(verdicts(propagate(graph_of(3, {edge(0, 1, true), edge(1, 2)}), {H, A, A})), (std::vector{H, C, C}));
  EXPECT_EQ(verdicts(propagate(graph_of(2, {edge(0, 1, true)}), {H, C})), (std::vector{H, C}));
  EXPECT_EQ(verdicts(propagate(graph_of(2, {edge(0, 1, true)}), {A, A})), (std::vector{A, A}));
}

TEST(Closure, TakesTheShortestChain) {
  const auto propagated = propagate(graph_of(4, {edge(0, 1), edge(1, 2), edge(2, 3), edge(0, 3)}), {H, C, C, C});
  EXPECT_EQ(propagated[3].by, 3u);
}

TEST(Closure, ACircleHoldsOnlyWhenSomethingHoldsIt) {
  const Graph circle = graph_of(4, {edge(0, 1), edge(1, 2), edge(2, 0), edge(3, 1)});
  EXPECT_EQ(verdicts(propagate(circle, {C, C, C, C})), (std::vector{C, C, C, C}));
  EXPECT_EQ(verdicts(propagate(circle, {C, C, C, H})), (std::vector{H, H, H, H}));
}

TEST(Closure, RefusesEdgesToNothing) {
  EXPECT_THROW(propagate(graph_of(1, {edge(0, 1)}), {H}), CorruptData);
  EXPECT_THROW(propagate(graph_of(2, {}), {H}), CorruptData);
}

// On random graphs: nobody is colder than what needs it, nobody is hotter than some reason says, and each chain of
// reasons ends at something that is so by itself.
TEST(Closure, NoKeptNodeLosesWhatItNeedsOnRandomGraphs) {
  std::mt19937 random(20261121);
  const auto below = [&](std::uint32_t limit) { return std::uint32_t(random() % limit); };
  for (int round = 0; round < 3000; ++round) {
    const auto nodes = 1 + below(40);
    std::vector<Edge> edges;
    for (auto count = below(4 * nodes); count > 0; --count)
      edges.push_back(edge(below(nodes), below(nodes), below(4) == 0));
    std::vector<Verdict> own;
    for (std::uint32_t i = 0; i < nodes; ++i) own.push_back(Verdict(below(20) == 0 ? 0 : 1 + below(3)));
    const auto graph = graph_of(nodes, edges);
    const auto propagated = propagate(graph, own);
    for (const auto& one : edges) {
      const auto from = propagated[one.from].verdict, to = propagated[one.to].verdict;
      if (one.soft) {
        EXPECT_TRUE(from == A || to != A);
      } else {
        EXPECT_LE(to, from);
      }
    }
    for (std::uint32_t i = 0; i < nodes; ++i) {
      EXPECT_LE(propagated[i].verdict, own[i]);
      std::uint32_t at = i;
      for (std::uint32_t steps = 0; propagated[at].by; ++steps) {
        ASSERT_LE(steps, nodes) << "a chain that does not end";
        const auto& by = graph.edges[*propagated[at].by];
        EXPECT_EQ(by.to, at);
        EXPECT_LE(propagated[by.from].verdict, propagated[at].verdict);
        at = by.from;
      }
      EXPECT_EQ(propagated[at].verdict, own[at]);
    }
  }
}

}  // namespace
}  // namespace varve::prune
