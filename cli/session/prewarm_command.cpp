#include <ostream>
#include <span>

#include <nlohmann/json.hpp>

#include "analyzer/prewarm/carry_out.h"
#include "analyzer/prewarm/known_uses.h"
#include "analyzer/prewarm/plan.h"
#include "analyzer/prewarm/used_content.h"
#include "analyzer/report/window.h"
#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/session/daemon_access.h"
#include "cli/usage/usage_database.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/window_store.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using prewarm::Action;
using prewarm::What;

struct PrewarmArguments {
  std::vector<std::string> images;
  std::uint64_t budget_bytes = 0;
  std::string database;
  std::string window = "90d";
  bool dry_run = false;
};

// What the plan is made of, and how the daemon is asked for it.
struct Subjects {
  std::vector<prewarm::Image> images;
  std::vector<Digest> digests;
  std::vector<fuse::ImageSpec> specs;
};

// Empty without a database.
std::optional<prewarm::KnownUses> known_uses(const Context& context, const PrewarmArguments& arguments) {
  if (arguments.database.empty()) return std::nullopt;
  const auto window = report::parse_window(arguments.window, today_utc());
  const std::shared_ptr database = open_existing_database(context, arguments.database);
  return prewarm::KnownUses([database, window](const std::optional<Digest>& image) {
    return database->snapshot({.window = window, .image = image});
  });
}

std::vector<prewarm::Pack> packs_of(const index::StartPacks& packs) {
  std::vector<prewarm::Pack> list;
  for (const auto& group : packs.groups)
    list.push_back({.name = group.name,
                    .is_program = group.kind == index::StartGroup::Kind::kProgram,
                    .trigger = {.layer = packs.layers[group.trigger.layer], .stream_range = group.trigger.stream_range},
                    .map = std::make_shared<const index::LayerMap>(group.pack.map())});
  return list;
}

Subjects read_subjects(Context& context, const PrewarmArguments& arguments) {
  Subjects subjects;
  const auto uses = known_uses(context, arguments);
  for (const auto& reference : arguments.images) {
    context.cancel.throw_if_cancelled();
    const auto image = open_indexed(context, reference,
                                    index::IndexPlace::kRepository);  // a newer profile is worth the question
    auto& one = subjects.images.emplace_back(prewarm::Image{.name = reference,
                                                            .maps = image.index().maps,
                                                            .cold = image.index().cold,
                                                            .profile = image.index().profile,
                                                            .packs = packs_of(image.index().packs),
                                                            .sessions = 0,
                                                            .packages = {}});
    if (uses) {
      one.sessions = uses->sessions_of(image.digest());
      one.packages = prewarm::used_packages(image.tree(), packages::read_inventory(image), one.maps,
                                            uses->distributions_of(image.digest()));
    }
    subjects.digests.push_back(image.digest());
    subjects.specs.push_back(image_spec(context, reference));
  }
  return subjects;
}

prewarm::Plan make_plan(const Subjects& subjects, std::uint64_t budget_bytes, fuse::ControlClient& daemon) {
  prewarm::Present present;
  for (const auto& spec : subjects.specs) {
    for (auto& [layer, ranges] : daemon.present(spec)) present[layer] = std::move(ranges);
  }
  return prewarm::make_plan(subjects.images, present,
                            {.budget_bytes = budget_bytes,
                             .window_block_bytes = index::kWindowBlockBytes,
                             .whole_windows_bytes = fuse::kWholeWindowsBytes,
                             .merge_gap_bytes = fuse::StreamOptions().merge_gap_bytes});
}

std::vector<fuse::LayerRanges> by_layer(std::span<const prewarm::LayerRange> ranges) {
  std::vector<fuse::LayerRanges> layers;
  for (const auto& range : ranges) {
    if (layers.empty() || layers.back().layer != range.layer) layers.push_back({.layer = range.layer, .ranges = {}});
    layers.back().ranges.push_back(range.stream_range);
  }
  return layers;
}

prewarm::Outcome carry_out(Context& context, const Subjects& subjects, const prewarm::Plan& plan,
                           std::uint64_t budget_bytes, fuse::ControlClient& daemon) {
  Progress progress;
  const ProgressLine line(progress, "prewarm", context.global.quiet);
  const auto fetch = [&](std::size_t image, std::span<const prewarm::LayerRange> ranges,
                         const prewarm::FetchProgress& told) {
    return daemon.fetch(subjects.specs[image], by_layer(ranges), told, context.cancel).fetched_bytes;
  };
  return prewarm::carry_out(plan, {.budget_bytes = budget_bytes, .max_ranges = fuse::kMaxFetchRanges}, fetch,
                            {progress, context.cancel});
}

std::string state_of(const prewarm::Item& item, bool left, bool dry_run) {
  if (left) return "over-budget";
  switch (item.action) {
    case Action::kFetch:
      return dry_run ? "planned" : "fetched";
    case Action::kPart:
      return dry_run ? "planned-part" : "fetched-part";
    case Action::kLocal:
      return "here";
    case Action::kTooLarge:
      return "over-budget";
  }
  return "over-budget";
}

std::string_view kind_of(const prewarm::Item& item) {
  switch (item.what) {
    case What::kProfile:
      return "profile";
    case What::kProgramPack:
    case What::kImportPack:
      return "pack";
    case What::kPackage:
      return "package";
  }
  return "package";
}

std::string why(const prewarm::Item& item, bool with_use) {
  switch (item.what) {
    case What::kProfile:
    case What::kProgramPack:
      return with_use ? fmt::format("start of {} sessions", item.sessions) : "start";
    case What::kImportPack:
      return item.sessions > 0 ? fmt::format("imported in {} sessions", item.sessions) : "import";
    case What::kPackage:
      return fmt::format("used in {} sessions", item.sessions);
  }
  return {};
}

// "numpy", "pack of numpy", "profile".
std::string label_of(const prewarm::Item& item) {
  if (item.what == What::kProfile) return "profile";
  return (item.what == What::kPackage ? "" : "pack of ") + printable(item.name);
}

json document_of(const Subjects& subjects, const prewarm::Plan& plan, const prewarm::Outcome& outcome,
                 const PrewarmArguments& arguments) {
  json images = json::array(), items = json::array();
  for (std::size_t i = 0; i < subjects.images.size(); ++i) {
    const auto& one = subjects.images[i];
    images.push_back({{"name", one.name},
                      {"image", subjects.digests[i].to_string()},
                      {"sessions", one.sessions},
                      {"profile_bytes", one.profile.bytes()},
                      {"packs", one.packs.size()},
                      {"packages", one.packages.size()}});
  }
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    items.push_back({{"kind", kind_of(item)},
                     {"image", subjects.digests[item.image].to_string()},
                     {"name", item.name},
                     {"sessions", item.sessions},
                     {"why", why(item, !arguments.database.empty())},
                     {"state", state_of(item, outcome.left[i], arguments.dry_run)},
                     {"planned_bytes", item.download_bytes},
                     {"fetched_bytes", outcome.fetched_bytes[i]}});
  }
  return {{"budget_bytes", arguments.budget_bytes},
          {"planned_bytes", plan.download_bytes},
          {"fetched_bytes", outcome.sum_bytes},
          {"dry_run", arguments.dry_run},
          {"images", std::move(images)},
          {"items", std::move(items)}};
}

void print(Context& context, const Subjects& subjects, const prewarm::Plan& plan, const prewarm::Outcome& outcome,
           const PrewarmArguments& arguments) {
  std::vector<std::vector<std::string>> rows{{"WHAT", "IMAGE", "WHY", "BYTES", "STATE"}};
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    rows.push_back({label_of(item), printable(subjects.images[item.image].name), why(item, !arguments.database.empty()),
                    human_bytes(item.download_bytes), state_of(item, outcome.left[i], arguments.dry_run)});
  }
  if (plan.items.empty()) {
    context.out
        << (arguments.database.empty()
                ? "nothing to do: none of these images has start-up packs or a profile, and without --usage nothing is "
                  "known of packages\n"
                : "nothing to do: none of these images has start-up packs or a profile, and nobody is known to use a "
                  "package of them\n");
    return;
  }
  print_table(context.out, rows);
  if (arguments.dry_run)
    context.out << fmt::format("at most {} of {} would be fetched\n", human_bytes(plan.download_bytes),
                               human_bytes(arguments.budget_bytes));
  else
    context.out << fmt::format("{} of {} were fetched\n", human_bytes(outcome.sum_bytes),
                               human_bytes(arguments.budget_bytes));
}

void run_prewarm(Context& context, const PrewarmArguments& arguments) {
  const auto subjects = read_subjects(context, arguments);
  auto daemon = connect_or_start_daemon(context);
  const auto plan = make_plan(subjects, arguments.budget_bytes, daemon);
  const auto outcome =
      arguments.dry_run ? prewarm::Outcome(plan) : carry_out(context, subjects, plan, arguments.budget_bytes, daemon);
  if (context.global.json)
    context.print_json(document_of(subjects, plan, outcome, arguments));
  else
    print(context, subjects, plan, outcome, arguments);
}

}  // namespace

void add_prewarm_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<PrewarmArguments>();
  auto* command = app.add_subcommand(
      "prewarm", "Fills this machine's store ahead of demand: how images start, then the packages that are used most");
  command
      ->add_option("IMAGE", arguments->images, "The images, indexed; without --usage in the order in which they matter")
      ->required();
  command->add_option("--budget", arguments->budget_bytes, "Most bytes to download: 2000000000, 2GB, 2GiB")
      ->required()
      ->transform(CLI::AsSizeValue(true))
      ->type_name("BYTES");
  command
      ->add_option("--usage", arguments->database,
                   "The usage database: a file, or postgresql://...; says which images and packages come first")
      ->type_name("DB");
  command->add_option("--window", arguments->window, "The time of use looked at: Nd, Nw, Ny or FROM..TO")
      ->capture_default_str();
  command->add_flag("--dry-run", arguments->dry_run, "Say what would be fetched and why");
  command->footer(
      "Examples:\n  varve prewarm --budget 2GB registry.example/team/notebook:2026-11\n"
      "  varve prewarm --budget 20GiB --usage usage.db --dry-run registry.example/team/notebook:2026-11 "
      "registry.example/team/notebook:2026-10\n\n"
      "What is here already costs nothing, and is not fetched again: run it again after it was stopped, and it goes "
      "on. docs/guide/warm-machines.md says how the order is made.");
  command->callback([&context, arguments] { run_prewarm(context, *arguments); });
}

}  // namespace varve::cli
