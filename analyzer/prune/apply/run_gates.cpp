#include "analyzer/prune/apply/run_gates.h"

#include <algorithm>
#include <utility>

namespace varve::prune {
namespace {

struct Gate {
  const char* name;
  GateJudge judge;
  std::string why_not = {};  // not empty: nobody asked for it
};

// The cheapest first: what the indexes say, what the repositories say, what sessions say, what writing again says.
std::vector<Gate> gates_of(const ImageView& before, const ImageView& after, SessionRunner& sessions,
                           const ImagePair& images, const GateRequest& request) {
  std::vector<Gate> gates;
  gates.push_back(
      {"tree", [&](GateResult& result) { judge_tree(before.tree(), after.tree(), request.change, result); }});
  gates.push_back({"metadata", [&](GateResult& result) { judge_metadata(images, result); }});
  gates.push_back({"elf", [&](GateResult& result) { judge_elf(before.loader_view(), after.loader_view(), result); }});
  gates.push_back({"imports", [&](GateResult& result) { judge_imports(sessions, images, request.imports, result); }});
  gates.push_back({"replay",
                   [&](GateResult& result) {
                     if (!request.replay) throw CouldNotRun("no usage database was named (--usage DB)");
                     judge_replay(sessions, images, *request.replay, request.imports, result);
                   },
                   request.replay || request.must_replay ? "" : "no usage database was named (--usage DB)"});
  gates.push_back(
      {"cuda", [&](GateResult& result) { judge_cuda(before.cuda_manifest(), after.cuda_manifest(), result); }});
  gates.push_back({"pins", request.pins});
  gates.push_back(
      {"rebuild", request.rebuild, request.rebuild ? "" : "it writes the image a second time (--gate rebuild)"});
  if (request.proof != nullptr)
    gates.push_back({"proof", [&](GateResult& result) {
                       judge_proof(*request.proof, before.cuda_manifest(), after.cuda_manifest(), result);
                     }});
  return gates;
}

GateResult not_asked(const char* name, const std::string& why) {
  GateResult result;
  result.name = name;
  result.ok = true;
  result.asked = false;
  result.detail = "not asked: " + why;
  return result;
}

}  // namespace

std::vector<GateResult> run_gates(const ImageView& before, const ImageView& after, SessionRunner& sessions,
                                  const GateRequest& request, const CancelFlag& cancel, const OnGate& on_gate) {
  const ImagePair images{before.inventory(), after.inventory(), request.plan};
  const auto waivers = request.plan == nullptr ? std::vector<Waiver>() : request.plan->waivers;
  std::vector<GateResult> results;
  for (const auto& gate : gates_of(before, after, sessions, images, request)) {
    cancel.throw_if_cancelled();
    results.push_back(gate.why_not.empty() ? run_gate(gate.name, waivers, gate.judge)
                                           : not_asked(gate.name, gate.why_not));
    on_gate(results.back());
  }
  return results;
}

bool all_pass(const std::vector<GateResult>& gates) { return std::ranges::all_of(gates, passes); }

}  // namespace varve::prune
