#pragma once
// All gates on two images, in the order of what they cost: what indexes and repositories say, what sessions say, what
// writing again says.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/prune/apply/gates.h"
#include "analyzer/prune/apply/proof.h"
#include "analyzer/prune/apply/replay_sets.h"
#include "analyzer/prune/image_view.h"
#include "core/base/threads/cancel.h"

namespace varve::prune {

using GateJudge = std::function<void(GateResult&)>;  // run_gate()'s

struct Gate {
  std::string name;
  GateJudge judge;
  std::string why_not = {};  // not empty: it is not asked
};
// Gates of others on the two images, in the order in which they are asked; what they are given outlives them. What they
// import they leave in the answers.
using MoreGates =
    std::function<std::vector<Gate>(const ImagePair& images, const ImageView& after, ImportAnswers& answers)>;

struct GateRequest {
  const Plan* plan = nullptr;
  TreeChange change;
  TimesRule times;
  std::optional<ImportSets> replay;  // absent: no usage database was named
  bool must_replay = false;          // without one the gate could not run
  ImportOptions imports;
  GateJudge pins;                // pins are the indexer's
  MoreGates more;                // asked before imports; empty: none
  GateJudge rebuild;             // empty: nobody asked for it by name
  const Proof* proof = nullptr;  // of the new image; null: it has none, or is to get it
  bool all = true;               // false: after the first that does not pass, the others are not asked
};
using OnGate = std::function<void(const GateResult&)>;

// One result for every gate, also for those that were not asked. Each is told to `on_gate` as it ends. Throws Cancelled
// only.
std::vector<GateResult> run_gates(const ImageView& before, const ImageView& after, SessionRunner& sessions,
                                  const GateRequest& request, const CancelFlag& cancel, const OnGate& on_gate);

bool all_pass(const std::vector<GateResult>& gates);

}  // namespace varve::prune
