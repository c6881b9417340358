#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/prune/apply/check_image.h"
#include "analyzer/prune/probe/probe_gates.h"
#include "cli/base/open_image.h"
#include "cli/prune/prune_command.h"
#include "cli/prune/prune_gates.h"
#include "cli/prune/pruned_image.h"
#include "cli/session/child_sessions.h"
#include "core/base/files/file.h"
#include "core/base/log.h"

namespace varve::cli {
namespace {

constexpr std::string_view kHelp =
    "Gates: tree, metadata, elf, cuda, pins, starts, listed, scripts, cold, imports, replay, rebuild. One that "
    "could not run fails too, unless the plan waives it by name. Rebuild is asked with --gate alone.\n"
    "An image that `varve prune apply` wrote has a proof beside it, which is checked too, years later as well.\n"
    "Imports run in sessions of both images, without network.";

struct GatesArguments {
  std::string before, after, plan, usage, previous;
  unsigned jobs = 0;
  int import_limit = 120;
  bool rebuild = false;
};

std::optional<prune::Plan> read_plan(const std::string& file) {
  if (file.empty()) return std::nullopt;
  const auto text = read_file(file, prune::kMaxPlanBytes);
  return prune::parse_plan(as_text(text), file);
}

void run_check(Context& context, const GatesArguments& arguments) {
  // Two readings of a false index would agree with each other.
  index_here_if_others_did(context, arguments.before);
  index_here_if_others_did(context, arguments.after);
  const auto old_image = open_indexed(context, arguments.before);
  const auto new_image = open_indexed(context, arguments.after);
  const prune::ImageView before(arguments.before, old_image);
  const prune::ImageView after(arguments.after, new_image);
  PrunedImageWriter writer(context);
  ChildSessions sessions(context);
  for (const auto* image : {&before, &after})
    sessions.add(image->digest(), by_digest(oci::Reference::parse(image->reference()), image->digest()));
  const auto evidence = read_evidence(context, arguments.usage, before.digest());
  const prune::ImportOptions imports{.jobs = arguments.jobs, .limit = std::chrono::seconds(arguments.import_limit)};
  const auto report = prune::check_image(
      {.before = before,
       .after = after,
       .plan = read_plan(arguments.plan),
       .plan_name = arguments.plan,
       .replay = evidence.replay,
       .imports = imports,
       .more_gates =
           prune::probe_gates(sessions, evidence.known_probe(), evidence.named_programs, imports, context.cancel),
       .pins =
           [&](prune::GateResult& result) {
             watch_pins(context, {old_image.image().repository, new_image.image().repository})(result);
           },
       .rebuild = arguments.rebuild,
       .previous =
           arguments.previous.empty() ? nullptr : std::make_shared<oci::Image>(context.open_image(arguments.previous))},
      {.writer = writer, .sessions = sessions, .scratch = context.global.root / "tmp", .cancel = context.cancel},
      [&](const prune::GateResult& gate) { print_gate(context, gate); });
  if (report.archived != 0 && arguments.plan.empty())
    log::warn(
        "by the plan that {} has in its proof, {} distributions may be missing; --plan FILE says which plan you mean",
        arguments.after, report.archived);
  const bool ok = prune::all_pass(report.gates);
  if (!ok) context.exit_status = 3;
  if (context.global.json)
    context.print_json(
        {{"proof", report.proof ? nlohmann::json(report.proof->plan.to_string()) : nlohmann::json(nullptr)},
         {"old", before.digest().to_string()},
         {"new", after.digest().to_string()},
         {"ok", ok},
         {"gates", gates_json(report.gates)}});
}

// One command under two names: of the one who prunes, and of the pipeline that asks whether an image is as its last.
void add_gates_command(CLI::App& parent, Context& context, std::string_view example) {
  const auto arguments = std::make_shared<GatesArguments>();
  auto* check = parent.add_subcommand(
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
  check->add_option("--jobs", arguments->jobs, "Imports at the same time; 0 means one per core")->type_name("N");
  check->add_option("--import-limit", arguments->import_limit, "Seconds that one import may take")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_gate_option(*check, arguments->rebuild);
  check
      ->add_option("--previous", arguments->previous,
                   "With --gate rebuild: the version that NEW was written after, if it lies elsewhere")
      ->type_name("IMAGE")
      ->needs(check->get_option("--gate"));
  check->footer(fmt::format("Example:\n  {}\n\n{}", example, kHelp));
  check->callback([&context, arguments] { run_check(context, *arguments); });
}

}  // namespace

void add_prune_check_command(CLI::App& prune, Context& context) {
  add_gates_command(prune, context,
                    "varve prune check registry.example/team/notebook:v143 "
                    "registry.example/team/notebook:v143-pruned --usage usage.db");
}

void add_image_check_command(CLI::App& image, Context& context) {
  add_gates_command(image, context,
                    "varve image check registry.example/team/notebook:v143 registry.example/team/notebook:v144");
}

}  // namespace varve::cli
