#pragma once
// Gates that ask whether what started in the old image starts in the new one. The old half is the image's kept probe,
// so only the new image is run, and of it only what a gate is about.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "analyzer/prune/apply/run_gates.h"
#include "analyzer/prune/probe/probe_image.h"
#include "core/index/format/cold_ranges.h"

namespace varve::prune {

// All that these gates look at. Everything must outlive their calls.
struct ProbedPair {
  SessionRunner& sessions;
  const ImagePair& images;
  const usage::Probe& before;  // of the old image
  const index::FileSource& after;
  std::function<std::vector<ProbeTarget>()> targets;  // probe_targets() of the new image: each gate asks for them
  ProbeOptions options;
  ImportAnswers& answers;  // what "cold" imports the gate "imports" has no need to
  const CancelFlag& cancel;
};

// A thing that worked must work, and one that ended in some way must end so; what did not work before is not looked at.
// What differs is asked once more, alone, before it counts: the first time may have been a busy moment. All throw
// CouldNotRun as probe_image() does, and if the probe is of another image.

// "starts": Python starts and says the same on standard error, kernels reply, the image's command starts.
void judge_starts(const ProbedPair& pair, GateResult& result);
// "listed": server and lab extensions are listed, entry points other than scripts are there and load.
void judge_listed(const ProbedPair& pair, GateResult& result);
// "scripts": console scripts that notebooks name answer to --help. `named`: programs as notebooks name them.
void judge_scripts(const ProbedPair& pair, const std::set<std::string>& named, GateResult& result);

// "cold": no import of a distribution that the plan keeps near opens a file of which a byte is cold. Without a
// plan all imports count, and files that are cold as a whole. `cold`: of the new image's index; `maps`: of its layers.
void judge_cold_reads(const ProbedPair& pair, const index::ColdRanges& cold,
                      const std::vector<std::shared_ptr<const index::LayerMap>>& maps, GateResult& result);

// What imports missed when the old image was probed, for the gate "imports". Items do not tell Pythons apart: nothing
// is taken where several have distributions.
void take_missed(const usage::Probe& probe, const packages::Inventory& before, ImportAnswers& answers);

// All of them, as run_gates() takes them. `before`: the old image's probe; null: nobody made one, and none is asked.
// What is given must outlive the gates.
MoreGates probe_gates(SessionRunner& sessions, const usage::Probe* before, const std::set<std::string>& named,
                      const ImportOptions& imports, const CancelFlag& cancel);

}  // namespace varve::prune
