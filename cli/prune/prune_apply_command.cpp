#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/prune/apply/apply_plan.h"
#include "analyzer/prune/probe/probe_gates.h"
#include "cli/base/destination.h"
#include "cli/base/open_image.h"
#include "cli/image/repacked_image.h"
#include "cli/image/writer_options.h"
#include "cli/image/written_times.h"
#include "cli/prune/prune_command.h"
#include "cli/prune/prune_gates.h"
#include "cli/prune/pruned_image.h"
#include "cli/session/child_sessions.h"
#include "cli/trust/signing.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/units.h"

namespace varve::cli {
namespace {

struct ApplyArguments {
  std::string plan, destination, image, usage, previous;
  bool index_only = false;
  bool as_planned = false;
  bool rebuild = false;
  bool all_gates = false;
  bool replace = false;  // DEST may be the planned image itself
  prune::WriteSettings settings;
  TimesArguments times;
  int level = 0;  // the format's default
  unsigned import_jobs = 0;
  int import_limit = 120;
  SigningOptions signing;
};

// The image that was planned, by its digest. Throws UsageError if its reference means another one by now and nobody
// asked for the planned one.
std::string planned_image(const Context& context, const ApplyArguments& arguments, const prune::Plan& plan) {
  const auto given = arguments.image.empty() ? plan.reference : arguments.image;
  if (!arguments.as_planned) {
    const auto now = context.open_image(given).digest();
    if (now != plan.image)
      fail<UsageError>(
          "{} is a plan for {}, and {} is {} now: make a new plan, or say --as-planned to work on the image that was "
          "planned",
          arguments.plan, plan.image.to_string(), given, now.to_string());
  }
  return by_digest(oci::Reference::parse(given), plan.image);
}

nlohmann::json cold_json(const index::ColdSummary& cold) {
  return {{"files", cold.files},
          {"content_bytes", cold.content_bytes},
          {"stream_bytes", cold.stream_bytes},
          {"compressed_bytes", cold.compressed_bytes},
          {"part_files", cold.part_files},
          {"part_bytes", cold.part_bytes},
          {"shared_span_bytes", cold.shared_span_bytes},
          {"single_frame_bytes", cold.single_frame_bytes}};
}

void print_cold(const Context& context, const index::ColdSummary& cold) {
  const auto parts = cold.part_files == 0 ? std::string()
                                          : fmt::format(", and {} of code for other GPUs in {} more",
                                                        human_bytes(cold.part_bytes), cold.part_files);
  context.out << fmt::format("{} files are cold{}: {} need not be fetched before somebody reads them\n", cold.files,
                             parts, human_bytes(cold.compressed_bytes));
  if (const auto kept = cold.shared_span_bytes + cold.single_frame_bytes; kept != 0)
    context.out << fmt::format("{} of their content lie in spans that others need too\n", human_bytes(kept));
}

void apply_to_index(const Context& context, const ApplyArguments& arguments, const prune::Plan& plan) {
  std::optional<IndexSigner> signer;
  if (!arguments.signing.key.empty()) signer.emplace(arguments.signing);
  const auto planned = planned_image(context, arguments, plan);
  const auto opened = open_indexed(context, planned);
  const auto marks = prune::mark_cold_by_plan(prune::ImageView(planned, opened), plan, context.cancel);
  std::vector<SignedManifest> signatures;
  if (signer)
    signatures = signer->sign_further_index(opened.image(), marks.before, marks.index, *opened.image().repository);
  if (const auto warning = signer ? "" : unsigned_warning(context, planned); !warning.empty()) log::warn("{}", warning);
  if (context.global.json) {
    nlohmann::json document = {{"image", opened.digest().to_string()},
                               {"index", marks.index.to_string()},
                               {"cold", cold_json(marks.summary)},
                               {"gates", nlohmann::json::array()}};
    if (signer) document["signatures"] = to_json(signatures, signer->public_key());
    return context.print_json(document);
  }
  print_cold(context, marks.summary);
  context.out << fmt::format("index {}\n", marks.index.to_string());
  if (signer) context.out << summary_of(signatures, signer->public_key()) << '\n';
}

std::string who_takes_away(const oci::Reference& reference) {
  if (reference.kind == oci::Reference::Kind::kRegistry) return "the registry collects such garbage itself";
  return fmt::format(
      "`varve gc --untagged {0}` takes it away a day from now, with `--grace 0` at once (if nobody writes there)",
      reference.repository_name());
}

void print_applied(const Context& context, const ApplyArguments& arguments, const Destination& destination,
                   const prune::ApplyReport& report, const indexer::RepackReport& written) {
  print_cold(context, report.cold);
  const auto image = report.written.image.to_string();
  if (!report.published) {
    context.out << fmt::format("not published: the old image is as it was, and {} has no name; {}\n", image,
                               who_takes_away(destination.reference));
    return;
  }
  if (const auto warning = unsigned_warning(context, arguments.destination); !warning.empty()) log::warn("{}", warning);
  context.out << fmt::format("{} is {}\n{}{}\n", destination.reference.to_string(), image,
                             moved_text(destination, report.written.image), repacked_text(written));
}

void apply_to_image(Context& context, ApplyArguments& arguments, const prune::Plan& plan, const std::string& plan_text,
                    const oci::Reference& reference) {
  if (!reference.tag)
    fail<UsageError>("{}: write the tag that the new image gets when all gates have passed", arguments.destination);
  auto& settings = arguments.settings;
  settings.level = writer_options(settings.format, arguments.level, settings.jobs).level;
  settings.times = repack_times(arguments.times);
  const auto planned = planned_image(context, arguments, plan);
  index_here_if_others_did(context, planned);
  const auto old_image = open_indexed(context, planned);
  const prune::ImageView before(planned, old_image);
  const auto destination = open_destination(context, planned, reference);
  refuse_own_source(arguments.image.empty() ? plan.reference : arguments.image, plan.image, destination,
                    arguments.replace);
  if (!arguments.previous.empty())
    settings.previous = std::make_shared<oci::Image>(context.open_image(arguments.previous));
  PrunedImageWriter writer(context);
  ChildSessions sessions(context);
  sessions.add(before.digest(), planned);
  sessions.add_place(reference.to_string());
  const auto evidence = read_evidence(context, arguments.usage, before.digest());
  const prune::ImportOptions imports{.jobs = arguments.import_jobs,
                                     .limit = std::chrono::seconds(arguments.import_limit)};
  const auto report = prune::apply_plan(
      {.before = before,
       .plan = plan,
       .plan_text = plan_text,
       .destination = destination.repository,
       .reference = reference,
       .settings = settings,
       .replay = evidence.replay,
       .imports = imports,
       .more_gates =
           prune::probe_gates(sessions, evidence.known_probe(), evidence.named_programs, imports, context.cancel),
       .pins = watch_pins(context, {old_image.image().repository, destination.repository}),
       .rebuild = arguments.rebuild,
       .all_gates = arguments.all_gates},
      {.writer = writer, .sessions = sessions, .scratch = context.global.root / "tmp", .cancel = context.cancel},
      [&](const prune::GateResult& gate) { print_gate(context, gate); });
  if (!report.published) context.exit_status = 3;
  const auto& written = writer.report();
  if (!context.global.json) return print_applied(context, arguments, destination, report, written);
  context.print_json(
      {{"old_image", before.digest().to_string()},
       {"image", report.written.image.to_string()},
       {"published", report.published},
       {"replaced", report.published ? replaced_json(destination, report.written.image) : nlohmann::json()},
       {"index", report.index.to_string()},
       {"layers", layers_json(written)},
       {"reused_bytes", written.reused_bytes},
       {"copied_bytes", written.copied_bytes},
       {"new_bytes", written.new_bytes},
       {"cold", cold_json(report.cold)},
       {"gates", gates_json(report.gates)}});
}

void run_apply(Context& context, ApplyArguments& arguments) {
  const auto reference = arguments.destination.empty() ? oci::Reference() : parse_destination(arguments.destination);
  const auto bytes = read_file(arguments.plan, prune::kMaxPlanBytes);
  const std::string text(as_text(bytes));
  const auto plan = prune::parse_plan(text, arguments.plan);
  if (arguments.index_only) {
    if (!arguments.destination.empty())
      throw UsageError("--index-only writes beside the image that was planned: name no DEST");
    return apply_to_index(context, arguments, plan);
  }
  if (arguments.destination.empty()) throw UsageError("name a DEST for the new image, or say --index-only");
  apply_to_image(context, arguments, plan, text, reference);
}

}  // namespace

void add_prune_apply_command(CLI::App& prune, Context& context) {
  const auto arguments = std::make_shared<ApplyArguments>();
  auto* apply = prune.add_subcommand(
      "apply", "Carries out a plan: writes the image anew, cold layers last, and publishes it if all gates pass");
  apply->add_option("PLAN", arguments->plan, "The plan, as `varve prune plan` writes it")->required();
  apply->add_option("DEST", arguments->destination,
                    "Where the new image goes: oci:DIR:TAG or [docker://]HOST/REPO[:TAG]");
  apply->add_flag("--index-only", arguments->index_only,
                  "Write no image: a new index of the same one, for pinned versions too");
  add_signing_options(*apply, arguments->signing, "--sign");
  apply->get_option("--sign")->needs(apply->get_option("--index-only"));
  apply->add_option("--image", arguments->image, "Where the planned image is, if not where the plan says")
      ->type_name("IMAGE");
  apply->add_flag("--as-planned", arguments->as_planned,
                  "Work on the planned image even if its tag means another one by now");
  apply
      ->add_option("--usage", arguments->usage,
                   "The usage database whose notebooks are replayed: a file, or postgresql://...")
      ->type_name("DB");
  apply
      ->add_option("--previous", arguments->previous,
                   "The image's last version as Varve wrote it: its layers are used again where nothing changed")
      ->type_name("IMAGE");
  add_times_options(*apply, arguments->times);
  apply
      ->add_option("--format", arguments->settings.format,
                   "zstd:chunked, or gzip for runtimes that know no zstd (Docker before 23.0)")
      ->check(CLI::IsMember({"zstd:chunked", "gzip"}))
      ->capture_default_str();
  apply->add_option("--level", arguments->level, "Of compression: 1-19 (3 if not said) for zstd, 1-9 (6) for gzip")
      ->type_name("N");
  apply->add_option("--jobs", arguments->settings.jobs, "Threads that write; 0 means one per core")->type_name("N");
  apply->add_option("--import-jobs", arguments->import_jobs, "Imports at the same time; 0 means one per core")
      ->type_name("N");
  apply->add_option("--import-limit", arguments->import_limit, "Seconds that one import may take")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_gate_option(*apply, arguments->rebuild);
  add_replace_option(*apply, arguments->replace);
  apply->add_flag("--all", arguments->all_gates, "Ask all gates, also those behind the first that fails");
  apply->footer(
      "Examples:\n"
      "  varve prune apply plan.json registry.example/team/notebook:v143-pruned --usage usage.db\n"
      "  varve prune apply plan.json --index-only\n\n"
      "The old image is not touched. The new one gets its tag when all gates of `varve prune check` have passed; "
      "exit status 3 if one fails, and nothing\n"
      "is visible then. The proof is stored beside it. With --index-only the same image gets an index that says what "
      "is cold: pinned versions gain too.\n"
      "The index that is made is not signed by who signed the one before: with --index-only say --sign KEY; a new "
      "image is signed by `varve sign DEST --key KEY`.");
  apply->callback([&context, arguments] { run_apply(context, *arguments); });
}

}  // namespace varve::cli
