#include "analyzer/prune/apply/check_image.h"

#include <algorithm>

#include "analyzer/prune/apply/archive.h"

namespace varve::prune {
namespace {

// The plan that the new image was written by: as given, else that of the proof; absent if there is neither.
std::optional<Plan> plan_of(const CheckRequest& request, const std::optional<Proof>& proof) {
  auto plan = request.plan;
  auto what = request.plan_name;
  if (!plan && proof) {
    what = "the proof's plan " + proof->plan.to_string();
    plan = parse_plan(proof->plan_text, what);
  }
  const auto& old_image = request.before.digest();
  if (plan && plan->image != old_image)
    fail<UsageError>("{} is a plan for {}, and {} is {}", what, plan->image.to_string(), request.before.reference(),
                     old_image.to_string());
  return plan;
}

bool has_only_layers_of(const oci::Image& image, const oci::Image& other) {
  return std::ranges::all_of(image.manifest.layers, [&](const oci::Descriptor& layer) {
    return std::ranges::find(other.manifest.layers, layer.digest, &oci::Descriptor::digest) !=
           other.manifest.layers.end();
  });
}

// Only an image that says how it was written can be written again.
void judge_rebuild_of(const CheckRequest& request, const std::optional<Plan>& plan, const std::optional<Proof>& proof,
                      const TreeChange& change, const ApplyTools& tools, GateResult& result) {
  const auto& image = request.after.opened().image();
  if (has_only_layers_of(image, request.before.opened().image())) {
    result.detail = "nothing was written: every layer is one of the old image";
    return;
  }
  if (!proof || !plan) throw CouldNotRun("nothing says how the new image was written");
  judge_rebuild(tools.writer, request.before, image.digest(), place_by_plan(request.before, *plan, change),
                settings_of(*proof, image, request.previous), tools.scratch, result);
}

}  // namespace

CheckReport check_image(const CheckRequest& request, const ApplyTools& tools, const OnGate& on_gate) {
  const auto& before = request.before;
  CheckReport report;
  report.proof = find_proof(request.after.opened().image(), before.digest());
  const auto plan = plan_of(request, report.proof);
  GateRequest gates{.plan = plan ? &*plan : nullptr,
                    .change = {},
                    .times = tools.writer.times_rule(request.after.opened().image()),
                    .replay = request.replay,
                    .must_replay = false,
                    .imports = request.imports,
                    .pins = request.pins,
                    .more = request.more_gates,
                    .rebuild = {},
                    .proof = report.proof ? &*report.proof : nullptr};
  if (plan) {
    gates.change = archive(*plan, before.inventory(), before.opened(), image_name_of(*plan));
    report.archived = packages::count_packages(before.inventory(), archived_distributions(&*plan, before.inventory()));
  }
  if (request.rebuild)
    gates.rebuild = [&](GateResult& result) {
      judge_rebuild_of(request, plan, report.proof, gates.change, tools, result);
    };
  report.gates = run_gates(before, request.after, tools.sessions, gates, tools.cancel, on_gate);
  return report;
}

}  // namespace varve::prune
