#pragma once
// The gates alone, on any two images: by the new one's proof where it has one. docs/guide/prune-apply.md.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/prune/apply/apply_plan.h"

namespace varve::prune {

struct CheckRequest {
  const ImageView& before;
  const ImageView& after;
  std::optional<Plan> plan;          // absent: that of the proof
  std::string plan_name;             // for messages; "" without a plan
  std::optional<ImportSets> replay;  // absent: the gate "replay" is not asked
  ImportOptions imports;
  MoreGates more_gates = {};  // empty: none
  GateJudge pins;
  bool rebuild = false;
  std::shared_ptr<oci::Image> previous;  // the version before the new one, where it lies elsewhere; may be null
};

struct CheckReport {
  std::optional<Proof> proof;  // of the new image against the old one
  std::size_t archived = 0;    // distributions that the plan lets be missing
  std::vector<GateResult> gates;
};

// Throws UsageError for a plan of another image, and what find_proof() throws.
CheckReport check_image(const CheckRequest& request, const ApplyTools& tools, const OnGate& on_gate);

}  // namespace varve::prune
