#include <algorithm>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/prune/archive.h"
#include "cli/base/open_image.h"
#include "cli/prune/prune_command.h"
#include "cli/prune/pruned_image.h"
#include "core/base/log.h"

namespace varve::cli {
namespace {

struct PruneCheckArguments {
  std::string before, after, plan, usage;
  unsigned jobs = 0;
  int import_limit = 120;
  bool rebuild = false;
};

// The plan that the new image was written by: as given, else that of the proof; absent if there is neither.
std::optional<prune::Plan> find_plan(const PruneCheckArguments& arguments, const std::optional<prune::Proof>& proof,
                                     const Digest& old_image) {
  std::optional<prune::Plan> plan;
  auto what = arguments.plan;
  if (!what.empty()) {
    plan = read_plan(what);
  } else if (proof) {
    what = "the proof's plan " + proof->plan.to_string();
    plan = prune::parse_plan(proof->plan_text, what);
  }
  if (plan && plan->image != old_image)
    fail<UsageError>("{} is a plan for {}, and {} is {}", what, plan->image.to_string(), arguments.before,
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
void judge_rebuild_of(const Context& context, const prune::ImageView& before, const prune::ImageView& after,
                      const std::optional<prune::Proof>& proof, const GateRequest& request, prune::GateResult& result) {
  const auto& image = after.opened().image();
  if (has_only_layers_of(image, before.opened().image())) {
    result.detail = "nothing was written: every layer is one of the old image";
    return;
  }
  if (!proof || request.plan == nullptr) throw prune::CouldNotRun("nothing says how the new image was written");
  judge_rebuild(context, before, image.digest(), *request.plan, request.change,
                WriteSettings::read(proof->written, proof->tool, image), result);
}

void run_check(Context& context, const PruneCheckArguments& arguments) {
  // Two readings of a false index would agree with each other.
  index_here_if_others_did(context, arguments.before);
  index_here_if_others_did(context, arguments.after);
  const auto old_image = open_indexed(context, arguments.before);
  const auto new_image = open_indexed(context, arguments.after);
  const prune::ImageView before(arguments.before, old_image);
  const prune::ImageView after(arguments.after, new_image);
  GateRequest request;
  const auto proof = prune::find_proof(new_image.image(), before.digest());
  const auto plan = find_plan(arguments, proof, before.digest());
  if (plan) {
    request.plan = &*plan;
    request.change = prune::archive(*plan, before.inventory(), old_image, prune::image_name_of(*plan));
    const auto archived = prune::archived_distributions(&*plan, before.inventory()).size();
    if (archived != 0 && arguments.plan.empty())
      log::warn(
          "by the plan that {} has in its proof, {} distributions may be missing; --plan FILE says which plan you mean",
          arguments.after, archived);
  }
  if (proof) request.proof = &*proof;
  if (arguments.rebuild)
    request.rebuild = [&](prune::GateResult& result) {
      judge_rebuild_of(context, before, after, proof, request, result);
    };
  request.replay = read_replay_sets(context, arguments.usage, before.digest());
  request.imports = {.jobs = arguments.jobs, .limit = std::chrono::seconds(arguments.import_limit)};
  const auto gates = run_gates(context, before, after, request, [&](const prune::GateResult& gate) {
    if (!context.global.json) print_gate(context, gate);
  });
  if (!all_pass(gates)) context.exit_status = 3;
  if (context.global.json)
    context.print_json({{"proof", proof ? nlohmann::json(proof->plan.to_string()) : nlohmann::json(nullptr)},
                        {"old", before.digest().to_string()},
                        {"new", after.digest().to_string()},
                        {"ok", all_pass(gates)},
                        {"gates", gates_json(gates)}});
}

}  // namespace

void add_prune_check_command(CLI::App& prune, Context& context) {
  const auto arguments = std::make_shared<PruneCheckArguments>();
  auto* check = prune.add_subcommand(
      "check", "Does the new image lack anything that the old one has? Exit status 3 if a gate fails");
  check
      ->add_option("OLD", arguments->before,
                   "The image as it was, indexed: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")
      ->required();
  check->add_option("NEW", arguments->after, "The one written from it, indexed")->required();
  check
      ->add_option("--plan", arguments->plan,
                   "What it was written by; the plan of its proof if not said. Without one nothing may be archived")
      ->type_name("FILE");
  check
      ->add_option("--usage", arguments->usage,
                   "The usage database whose notebooks are replayed: a file, or postgresql://...")
      ->type_name("DB");
  check->add_option("--jobs", arguments->jobs, "Imports at the same time in each image; 0 means half the cores")
      ->type_name("N");
  check->add_option("--import-limit", arguments->import_limit, "Seconds that one import may take")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_gate_option(*check, arguments->rebuild);
  check->footer(
      "Example:\n  varve prune check registry.example/team/notebook:v143 registry.example/team/notebook:v143-pruned --usage usage.db\n\n"
      "Gates: tree, metadata, elf, imports, replay, cuda, pins, rebuild. One that could not run fails too, unless the plan waives it by name. Rebuild is asked with --gate alone.\n"
      "An image that `varve prune apply` wrote has a proof beside it, which is checked too, years later as well.\n"
      "Imports run in sessions of both images, without network.");
  check->callback([&context, arguments] { run_check(context, *arguments); });
}

}  // namespace varve::cli
