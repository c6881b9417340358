#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/prune/archive.h"
#include "analyzer/prune/proof.h"
#include "cli/base/destination.h"
#include "cli/base/open_image.h"
#include "cli/image/repacked_image.h"
#include "cli/prune/prune_command.h"
#include "cli/prune/pruned_image.h"
#include "cli/trust/signing.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/units.h"
#include "core/index/merge/mark_cold.h"
#include "core/index/publish_index.h"
#include "indexer/index_image.h"

namespace varve::cli {
namespace {

struct ApplyArguments {
  std::string plan, destination, image, usage, previous;
  bool index_only = false;
  bool as_planned = false;
  bool rebuild = false;
  WriteSettings settings;
  unsigned import_jobs = 0;
  int import_limit = 120;
  SigningOptions signing;
};

struct ColdMarks {
  Digest index;
  std::vector<SignedManifest> signatures = {};
  index::ColdSummary summary;
};

// The image that was planned, by its digest. Throws UsageError if its reference means another one by now and nobody
// asked for the planned one.
std::string planned_image(const Context& context, const ApplyArguments& arguments, const prune::Plan& plan) {
  const auto given = arguments.image.empty() ? plan.reference : arguments.image;
  if (!arguments.as_planned) {
    const auto now = context.open_image(given).digest();
    if (now != plan.image)
      fail<UsageError>(
          "{} is a plan for {}, and {} is {} now: make a new plan, or say --as-planned to work on the image that was planned",
          arguments.plan, plan.image.to_string(), given, now.to_string());
  }
  return by_digest(oci::Reference::parse(given), plan.image);
}

nlohmann::json cold_json(const index::ColdSummary& cold) {
  return {{"files", cold.files},
          {"content_bytes", cold.content_bytes},
          {"stream_bytes", cold.stream_bytes},
          {"compressed_bytes", cold.compressed_bytes},
          {"shared_span_bytes", cold.shared_span_bytes},
          {"single_frame_bytes", cold.single_frame_bytes}};
}

// A new index of the image that has these files cold; what the image is does not change.
ColdMarks mark_image(const Context& context, const index::OpenedImage& opened,
                     const std::set<std::string, std::less<>>& cold, const IndexSigner* signer) {
  // The last one published: the new one comes after it.
  const auto loaded = index::load_index(opened.local(), opened.image(), index::IndexPlace::kRepository);
  ColdMarks marks;
  const auto ranges = index::mark_cold(opened.tree(), loaded.maps, cold, &marks.summary);
  marks.index =
      index::publish_cold(opened.image(), loaded, ranges, opened.local(), *opened.image().repository, context.cancel)
          .manifest.digest;
  if (signer != nullptr)
    marks.signatures = signer->sign_further_index(opened.image(), loaded, marks.index, *opened.image().repository);
  return marks;
}

void print_marks(const Context& context, const ColdMarks& marks) {
  context.out << fmt::format("{} files are cold: {} need not be fetched before somebody reads them\n",
                             marks.summary.files, human_bytes(marks.summary.compressed_bytes));
  if (const auto kept = marks.summary.shared_span_bytes + marks.summary.single_frame_bytes; kept != 0)
    context.out << fmt::format("{} of their content lie in spans that others need too\n", human_bytes(kept));
}

void apply_to_index(const Context& context, const ApplyArguments& arguments, const prune::Plan& plan) {
  std::optional<IndexSigner> signer;
  if (!arguments.signing.key.empty()) signer.emplace(arguments.signing);
  const auto planned = planned_image(context, arguments, plan);
  const auto image = open_indexed(context, planned);
  const auto marks = mark_image(context, image, prune::cold_paths(plan, packages::read_inventory(image), image),
                                signer ? &*signer : nullptr);
  if (const auto warning = signer ? "" : unsigned_warning(context, planned); !warning.empty()) log::warn("{}", warning);
  if (context.global.json) {
    nlohmann::json document = {{"image", image.digest().to_string()},
                               {"index", marks.index.to_string()},
                               {"cold", cold_json(marks.summary)},
                               {"gates", nlohmann::json::array()}};
    if (signer) document["signatures"] = to_json(marks.signatures, signer->public_key());
    return context.print_json(document);
  }
  print_marks(context, marks);
  context.out << fmt::format("index {}\n", marks.index.to_string());
  if (signer) context.out << summary_of(marks.signatures, signer->public_key()) << '\n';
}

void index_new_image(const Context& context, const oci::Image& image) {
  auto local = context.local_index();
  Progress progress;
  const ProgressLine line(progress, "index", context.global.quiet);
  indexer::index_image(image, *image.repository, local, {}, {progress, context.cancel});
}

// Finished, and not yet under a name: what the gates look at.
struct Candidate {
  indexer::RepackReport report;
  oci::Document manifest;
  ColdMarks marks;
};

void publish(const Context& context, const ApplyArguments& arguments, const std::string& plan_text,
             const prune::ImageView& before, const prune::ImageView& after, const Candidate& candidate,
             const std::vector<prune::GateResult>& gates, oci::Repository& destination,
             const oci::Reference& reference) {
  prune::Proof proof;
  proof.old_image = before.digest();
  proof.image = after.digest();
  proof.tool = this_tool();
  proof.written = arguments.settings.describe();
  proof.gates = gates;
  proof.plan_text = plan_text;
  proof.cuda_before_text = cuda::to_json(before.cuda_manifest());
  proof.cuda_after_text = cuda::to_json(after.cuda_manifest());
  prune::publish_proof(destination, candidate.manifest.descriptor, proof);
  context.cancel.throw_if_cancelled();
  destination.put_manifest(candidate.manifest.bytes, candidate.manifest.descriptor.media_type, *reference.tag);
}

void apply_to_image(Context& context, ApplyArguments& arguments, const prune::Plan& plan, const std::string& plan_text,
                    const oci::Reference& reference) {
  if (!reference.tag)
    fail<UsageError>("{}: write the tag that the new image gets when all gates have passed", arguments.destination);
  const auto planned = planned_image(context, arguments, plan);
  index_here_if_others_did(context, planned);
  const auto old_image = open_indexed(context, planned);
  const prune::ImageView before(planned, old_image);
  const auto destination = open_destination(context, planned, reference);
  if (!arguments.previous.empty())
    arguments.settings.previous = std::make_shared<oci::Image>(context.open_image(arguments.previous));
  GateRequest request;
  request.plan = &plan;
  request.pins_before = pinned_places({&before});
  if (destination->name() != request.pins_before.front().name)
    request.pins_before.push_back({destination->name(), destination, indexer::read_pins(*destination)});
  request.change = prune::archive(plan, before.inventory(), old_image, prune::image_name_of(plan));
  request.imports = {.jobs = arguments.import_jobs, .limit = std::chrono::seconds(arguments.import_limit)};
  request.replay = read_replay_sets(context, arguments.usage, before.digest());
  request.must_replay = true;

  Candidate candidate;
  candidate.report = write_pruned_image(context, before, plan, request.change, arguments.settings, *destination,
                                        context.global.root / "tmp" / "relayer", "write");
  const auto image =
      oci::open_image(destination, candidate.report.image.to_string(), old_image.image().config.platform);
  candidate.manifest = image.document;
  index_new_image(context, image);
  const index::OpenedImage new_image(context.local_index(), image);
  const prune::ImageView after(by_digest(reference, image.digest()), new_image);
  candidate.marks = mark_image(context, new_image, prune::cold_paths(plan, after.inventory(), new_image), nullptr);
  if (arguments.rebuild)
    request.rebuild = [&](prune::GateResult& result) {
      judge_rebuild(context, before, candidate.report.image, plan, request.change, arguments.settings, result);
    };
  const auto gates = run_gates(context, before, after, request, [&](const prune::GateResult& gate) {
    if (!context.global.json) print_gate(context, gate);
  });
  const bool passed = all_pass(gates);
  if (passed) publish(context, arguments, plan_text, before, after, candidate, gates, *destination, reference);
  if (!passed) context.exit_status = 3;
  if (context.global.json)
    return context.print_json({{"old_image", before.digest().to_string()},
                               {"image", candidate.report.image.to_string()},
                               {"published", passed},
                               {"index", candidate.marks.index.to_string()},
                               {"layers", layers_json(candidate.report)},
                               {"reused_bytes", candidate.report.reused_bytes},
                               {"new_bytes", candidate.report.new_bytes},
                               {"cold", cold_json(candidate.marks.summary)},
                               {"gates", gates_json(gates)}});
  print_marks(context, candidate.marks);
  if (const auto warning = passed ? unsigned_warning(context, arguments.destination) : ""; !warning.empty())
    log::warn("{}", warning);
  if (passed) {
    context.out << fmt::format("{} is {}\n{} written, {} reused\n", reference.to_string(),
                               candidate.report.image.to_string(), human_bytes(candidate.report.new_bytes),
                               human_bytes(candidate.report.reused_bytes));
  } else {
    context.out << fmt::format(
        "not published: the old image is as it was, and {} has no name; `varve gc --untagged` takes it away\n",
        candidate.report.image.to_string());
  }
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
  apply
      ->add_option("--format", arguments->settings.format,
                   "zstd:chunked, or gzip for runtimes that know no zstd (Docker before 23.0)")
      ->check(CLI::IsMember({"zstd:chunked", "gzip"}))
      ->capture_default_str();
  apply
      ->add_option("--level", arguments->settings.level,
                   "Of compression: 1-19 (3 if not said) for zstd, 1-9 (6) for gzip")
      ->type_name("N");
  apply->add_option("--jobs", arguments->settings.jobs, "Threads that write; 0 means one per core")->type_name("N");
  apply
      ->add_option("--import-jobs", arguments->import_jobs,
                   "Imports at the same time in each image; 0 means half the cores")
      ->type_name("N");
  apply->add_option("--import-limit", arguments->import_limit, "Seconds that one import may take")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_gate_option(*apply, arguments->rebuild);
  apply->footer(
      "Examples:\n"
      "  varve prune apply plan.json registry.example/team/notebook:v143-pruned --usage usage.db\n"
      "  varve prune apply plan.json --index-only\n\n"
      "The old image is not touched. The new one gets its tag when all gates of `varve prune check` have passed; exit status 3 if one fails, and nothing\n"
      "is visible then. The proof is stored beside it. With --index-only the same image gets an index that says what is cold: pinned versions gain too.\n"
      "The index that is made is not signed by who signed the one before: with --index-only say --sign KEY; a new image is signed by `varve sign DEST --key KEY`.");
  apply->callback([&context, arguments] { run_apply(context, *arguments); });
}

}  // namespace varve::cli
