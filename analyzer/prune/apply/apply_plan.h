#pragma once
// A plan carried out: the image written anew and indexed, marked, asked by the gates, and published with its proof if
// all pass. docs/guide/prune-apply.md.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/prune/apply/cold_marks.h"
#include "analyzer/prune/apply/run_gates.h"
#include "analyzer/prune/apply/written_image.h"

namespace varve::prune {

// What apply and check are done with, given by the program. All must outlive them.
struct ApplyTools {
  ImageWriter& writer;
  SessionRunner& sessions;        // finds images of the destination by their digest
  std::filesystem::path scratch;  // folders for unfinished work are made in it
  const CancelFlag& cancel;
};

struct ApplyRequest {
  const ImageView& before;  // the image that was planned
  const Plan& plan;
  const std::string& plan_text;  // as it was read: the proof has it byte for byte
  std::shared_ptr<oci::Repository> destination;
  oci::Reference reference;  // of the new image: its tag, and the destination as messages name it
  WriteSettings settings;
  std::optional<ImportSets> replay;  // absent: no usage database was named, and the gate "replay" could not run
  ImportOptions imports;
  MoreGates more_gates = {};  // empty: none
  GateJudge pins;             // compares with the pins of before the call
  bool rebuild = false;
  bool all_gates = false;  // also those behind the first that fails
};

struct ApplyReport {
  WrittenImage written;
  Digest index;
  index::ColdSummary cold;
  std::vector<GateResult> gates;
  bool published = false;
};

// The tag is given last, and only if every gate passes: after a failed gate, an error or Cancelled the destination
// shows nothing new. What was written stays there without a name. Throws Unsupported as archive() and place_by_plan()
// do, and what writing, indexing and publishing throw.
ApplyReport apply_plan(const ApplyRequest& request, const ApplyTools& tools, const OnGate& on_gate);

}  // namespace varve::prune
