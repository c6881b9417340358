#include "analyzer/prune/apply/run_gates.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "analyzer/prune/apply/import_session.h"

namespace varve::prune {
namespace {

// The cheapest first.
std::vector<Gate> gates_of(const ImageView& before, const ImageView& after, SessionRunner& sessions,
                           const ImagePair& images, const GateRequest& request, ImportAnswers& answers) {
  std::vector<Gate> gates;
  gates.push_back({"tree", [&](GateResult& result) {
                     judge_tree(before.tree(), after.tree(), request.change, result, request.times, &before.opened());
                   }});
  gates.push_back({"metadata", [&, images](GateResult& result) { judge_metadata(images, result); }});
  gates.push_back({"elf", [&](GateResult& result) { judge_elf(before.loader_view(), after.loader_view(), result); }});
  gates.push_back({"cuda", [&](GateResult& result) {
                     judge_cuda(before.cuda_manifest(), after.cuda_manifest(), result, request.times);
                   }});
  if (request.proof != nullptr)
    gates.push_back({"proof", [&](GateResult& result) {
                       judge_proof(*request.proof, before.cuda_manifest(), after.cuda_manifest(), result);
                     }});
  gates.push_back({"pins", request.pins});
  if (request.more) std::ranges::move(request.more(images, after, answers), std::back_inserter(gates));
  gates.push_back({"imports", [&, images](GateResult& result) {
                     judge_imports(sessions, images, request.imports, answers, result);
                   }});
  gates.push_back({"replay",
                   [&, images](GateResult& result) {
                     if (!request.replay) throw CouldNotRun("no usage database was named (--usage DB)");
                     judge_replay(sessions, images, *request.replay, request.imports, answers, result);
                   },
                   request.replay || request.must_replay ? "" : "no usage database was named (--usage DB)"});
  gates.push_back(
      {"rebuild", request.rebuild, request.rebuild ? "" : "it writes the image a second time (--gate rebuild)"});
  return gates;
}

GateResult not_asked(const std::string& name, const std::string& why) {
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
  ImportAnswers answers;
  std::vector<GateResult> results;
  bool stopped = false;
  for (auto& gate : gates_of(before, after, sessions, images, request, answers)) {
    cancel.throw_if_cancelled();
    if (stopped && gate.why_not.empty()) gate.why_not = "stopped at the first failure (--all)";
    results.push_back(gate.why_not.empty() ? run_gate(gate.name, waivers, gate.judge)
                                           : not_asked(gate.name, gate.why_not));
    stopped = stopped || (!request.all && !passes(results.back()));
    on_gate(results.back());
  }
  return results;
}

bool all_pass(const std::vector<GateResult>& gates) { return std::ranges::all_of(gates, passes); }

}  // namespace varve::prune
