#include "analyzer/prune/apply/apply_plan.h"

#include <utility>

#include "analyzer/prune/apply/archive.h"
#include "analyzer/prune/apply/proof.h"
#include "core/trust/tool_version.h"

namespace varve::prune {
namespace {

void publish(const ApplyRequest& request, const oci::Image& image, const ImageView& after,
             const std::vector<GateResult>& gates, const CancelFlag& cancel) {
  Proof proof;
  proof.old_image = request.before.digest();
  proof.image = image.digest();
  proof.tool = trust::this_tool();
  proof.written = describe(request.settings);
  proof.gates = gates;
  proof.plan_text = request.plan_text;
  proof.cuda_before_text = cuda::to_json(request.before.cuda_manifest());
  proof.cuda_after_text = cuda::to_json(after.cuda_manifest());
  publish_proof(*request.destination, image.document.descriptor, proof);
  cancel.throw_if_cancelled();
  request.destination->put_manifest(image.document.bytes, image.document.descriptor.media_type,
                                    request.reference.tag.value());
}

}  // namespace

ApplyReport apply_plan(const ApplyRequest& request, const ApplyTools& tools, const OnGate& on_gate) {
  const auto& before = request.before;
  const auto& old = before.opened();
  const auto change = archive(request.plan, before.inventory(), old, image_name_of(request.plan));
  ApplyReport report;
  // Every path is in it: it does not outlive the writing.
  report.written = tools.writer.write(before, place_by_plan(before, request.plan, change), request.settings,
                                      *request.destination, tools.scratch / "relayer", true);
  const auto image =
      oci::open_image(request.destination, report.written.image.to_string(), old.image().config.platform);
  tools.writer.index(image);
  const index::OpenedImage new_image(old.local(), image);
  auto name = request.reference;
  name.tag.reset();
  name.digest = image.digest();
  const ImageView after(name.to_string(), new_image);
  {
    const auto marks = mark_cold_by_plan(after, request.plan, tools.cancel);
    report.index = marks.index;
    report.cold = marks.summary;
  }
  GateRequest gates{.plan = &request.plan,
                    .change = change,
                    .times = tools.writer.times_rule(image),
                    .replay = request.replay,
                    .must_replay = true,
                    .imports = request.imports,
                    .pins = request.pins,
                    .more = request.more_gates,
                    .rebuild = {},
                    .proof = nullptr,
                    .all = request.all_gates};
  if (request.rebuild)
    gates.rebuild = [&](GateResult& result) {
      judge_rebuild(tools.writer, before, image.digest(), place_by_plan(before, request.plan, change), request.settings,
                    tools.scratch, result);
    };
  report.gates = run_gates(before, after, tools.sessions, gates, tools.cancel, on_gate);
  report.published = all_pass(report.gates);
  if (report.published) publish(request, image, after, report.gates, tools.cancel);
  return report;
}

}  // namespace varve::prune
