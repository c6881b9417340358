#pragma once
// From an inventory and the evidence of use to a verdict for each distribution. Pure: reads no clock and no file; the
// same input gives the same plan. How verdicts come about, with every threshold: docs/guide/prune-plan.md.
#include <string>
#include <vector>

#include "analyzer/prune/closure.h"
#include "analyzer/prune/keep_rules.h"
#include "analyzer/prune/needs.h"
#include "analyzer/prune/nodes.h"
#include "analyzer/prune/plan.h"
#include "analyzer/usage/snapshot.h"

namespace varve::prune {

enum class Basis : std::uint8_t { kSessions, kNotebooks };  // what a share is out of

struct Thresholds {
  Basis basis = Basis::kSessions;
  double max_rate = 0.01;     // cold and watch only what is below this share of sessions at 95 %: three in a hundred
                              // sessions that were heard
  double min_coverage = 0.5;  // of the launched sessions that were heard, else zero says nothing
  std::uint64_t watch_below_users = 100;  // used by fewer, and seldom: watch
  std::uint64_t cold_below_users = 1;     // used by fewer, and seldom: cold. 1: only what nobody used
  std::int32_t archive_after = 0;  // days with heard sessions and no use since a plan first recorded that, without a
                                   // break; 0 = never archive
};

struct PlanInput {
  const Nodes& nodes;
  const usage::Snapshot& snapshot;  // over all images: what was used on another version counts
  const Graph& graph;               // of these nodes, import edges and ELF needs in it
  std::vector<Root> roots;          // built-in ones, rules, CUDA, what the config starts
  Thresholds thresholds;
  Digest image;
  std::string reference;
  std::int32_t today = 0;
  const Plan* previous = nullptr;  // may be null
  std::vector<Waiver> waivers;
  std::vector<std::string> unsure;    // what the caller already does not know
  std::vector<std::string> problems;  // why the caller's part should not be relied on
};

struct MadePlan {
  Plan plan;                          // without forecast, affected, unique and saved bytes: forecast.h, savings.h
  std::vector<std::string> problems;  // why it should not be relied on: exit 3. They are in plan.unsure, too
};

// Throws UsageError for thresholds that make no sense.
MadePlan make_plan(const PlanInput& input);

}  // namespace varve::prune
