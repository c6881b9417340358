#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/prune/plan_image.h"
#include "analyzer/prune/plan_text.h"
#include "analyzer/report/window.h"
#include "cli/base/open_image.h"
#include "cli/prune/kept_probe.h"
#include "cli/prune/pinned_savings.h"
#include "cli/prune/prune_command.h"
#include "cli/usage/usage_database.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

struct PlanArguments {
  std::string image, database, output, previous, explain, today;
  std::string window = "90d", archive_after;
  std::vector<std::string> keep, gpu_arch;
  bool no_built_in_rules = false, probe = false;
  prune::Thresholds thresholds;
  std::string basis = "sessions", max_rate = "1%", min_coverage = "50%";
  prune::PlanTextOptions text;
};

std::string read_text(const std::string& path) {
  const auto content = read_file(path);
  return std::string(as_text(content));
}

// "1%", "0.01".
double share_of(const std::string& text, std::string_view option) {
  const bool percent = text.ends_with('%');
  try {
    std::size_t used = 0;
    const auto number = std::stod(text, &used);
    if (used + (percent ? 1 : 0) == text.size() && number >= 0 && number <= (percent ? 100 : 1))
      return percent ? number / 100 : number;
  } catch (const std::logic_error&) {
  }
  fail<UsageError>("{}: \"{}\" is neither a share like 1% nor a number from 0 to 1", option, text);
}

prune::KeepRules read_rules(const std::vector<std::string>& files) {
  prune::KeepRules rules;
  for (const auto& file : files) {
    auto more = prune::parse_keep_rules(read_text(file), file);
    rules.rules.insert(rules.rules.end(), std::make_move_iterator(more.rules.begin()),
                       std::make_move_iterator(more.rules.end()));
    rules.waivers.insert(rules.waivers.end(), more.waivers.begin(), more.waivers.end());
    rules.consumers.insert(rules.consumers.end(), more.consumers.begin(), more.consumers.end());
  }
  return rules;
}

prune::Thresholds thresholds_of(const PlanArguments& arguments) {
  auto thresholds = arguments.thresholds;
  thresholds.basis = arguments.basis == "notebooks" ? prune::Basis::kNotebooks : prune::Basis::kSessions;
  thresholds.max_rate = share_of(arguments.max_rate, "--max-rate");
  thresholds.min_coverage = share_of(arguments.min_coverage, "--min-coverage");
  if (!arguments.archive_after.empty()) {
    const auto span = report::parse_window(arguments.archive_after, 0);
    thresholds.archive_after = span.last - span.first + 1;
  }
  return thresholds;
}

prune::MadePlan make(const Context& context, const PlanArguments& arguments) {
  const auto today =
      arguments.today.empty() ? today_utc() : report::parse_window(arguments.today + ".." + arguments.today, 0).first;
  const auto window = report::parse_window(arguments.window, today);
  const auto rules = read_rules(arguments.keep);
  std::optional<prune::Plan> previous;
  if (!arguments.previous.empty()) previous = prune::parse_plan(read_text(arguments.previous), arguments.previous);
  const auto database = open_existing_database(context, arguments.database);
  const auto opened = open_indexed(context, arguments.image);
  const prune::ImageView image(arguments.image, opened);
  auto probe = database->probe(image.digest());
  if (!probe && arguments.probe) probe = kept_probe(context, *database, arguments.image, opened, false).probe;
  Progress progress;
  const ProgressLine line(progress, "code of the image", context.global.quiet);
  return prune::plan_image({.image = image,
                            .database = *database,
                            .rules = rules,
                            .probe = probe ? &*probe : nullptr,
                            .built_in_rules = !arguments.no_built_in_rules,
                            .gpu_arch = arguments.gpu_arch,
                            .thresholds = thresholds_of(arguments),
                            .window = window,
                            .today = today,
                            .previous = previous ? &*previous : nullptr,
                            .savings = [&] { return pinned_savings(context, opened, image.inventory()); }},
                           {progress, context.cancel});
}

void show_explanation(const Context& context, const prune::Plan& plan, const std::string& name) {
  const auto lines = prune::explain(plan, name);
  if (context.global.json) return context.print_json({{"explain", lines}});
  for (const auto& line : lines) context.out << line << '\n';
}

void run_plan(Context& context, const PlanArguments& arguments) {
  const auto made = make(context, arguments);
  if (!arguments.output.empty()) {
    const auto text = prune::to_json(made.plan);
    write_file_atomically(arguments.output, as_bytes(text));
  }
  if (!arguments.explain.empty()) {
    show_explanation(context, made.plan, arguments.explain);
  } else if (context.global.json) {
    context.out << prune::to_json(made.plan);
  } else {
    prune::write_plan(made.plan, context.out, arguments.text);
    if (!arguments.output.empty()) context.out << "\nwritten: " << arguments.output << '\n';
  }
  for (const auto& problem : made.problems) log::warn("{}", printable(problem));
  if (!made.problems.empty()) context.exit_status = 3;
}

}  // namespace

void add_prune_plan_command(CLI::App& prune, Context& context) {
  const auto arguments = std::make_shared<PlanArguments>();
  auto* command = prune.add_subcommand(
      "plan", "What may go cold in an image, and why; changes nothing. Exit 3 if there is no evidence to plan by");
  command->add_option("IMAGE", arguments->image, "The image; it must be indexed")->required();
  command
      ->add_option("--usage", arguments->database,
                   "The usage database: a file, or postgresql://...; usage.db under --root if none is given")
      ->type_name("DB");
  command
      ->add_option(
          "--keep", arguments->keep,
          "Rules of what stays, vetoes and waived gates (docs/guide/prune-plan.md); may be given several times")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_flag("--no-built-in-rules", arguments->no_built_in_rules,
                    "Without the rules for notebook images that the program carries");
  command->add_flag("--probe", arguments->probe,
                    "Start everything of the image first, where `varve prune probe` has not done so");
  command->add_option("-o,--output", arguments->output, "Write the plan, to be reviewed and applied")
      ->type_name("PLAN");
  command
      ->add_option("--previous", arguments->previous,
                   "The plan before: what it let go cold and is used comes back, what stays unused may be archived")
      ->type_name("PLAN");
  command->add_option("--window", arguments->window, "The time looked at: Nd, Nw, Ny or FROM..TO")
      ->capture_default_str();
  command
      ->add_option("--explain", arguments->explain,
                   "Only this: why a distribution, or what code imports, stays or may go")
      ->type_name("NAME");
  command
      ->add_option("--basis", arguments->basis,
                   "What shares are out of: sessions that were heard, or notebooks that were scanned")
      ->check(CLI::IsMember({"sessions", "notebooks"}))
      ->capture_default_str();
  command->add_option("--max-rate", arguments->max_rate, "Cold only what is used in fewer sessions than this, at 95 %")
      ->type_name("SHARE")
      ->capture_default_str();
  command
      ->add_option("--min-coverage", arguments->min_coverage,
                   "Cold only if this share of the launched sessions was heard")
      ->type_name("SHARE")
      ->capture_default_str();
  command
      ->add_option("--watch-below-users", arguments->thresholds.watch_below_users,
                   "Watch what is rare and has fewer users in the window")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--cold-below-users", arguments->thresholds.cold_below_users,
                   "Cold what is rare and has fewer users in the window; 1: only what nobody used")
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--archive-after", arguments->archive_after,
                   "Archive what was not used on so many days with sessions since a plan recorded it unused: Nd, Nw, "
                   "Ny; never, if not given")
      ->type_name("TIME");
  command
      ->add_option(
          "--gpu-arch", arguments->gpu_arch,
          "The GPUs there are, as sm_80,sm_90, or \"sessions\": those that sessions reported. Code of CUDA libraries "
          "that none of them runs goes cold; PTX stays")
      ->type_name("ARCH")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--today", arguments->today, "The day the plan is made on, UTC")->type_name("DAY");
  command->add_option("--limit", arguments->text.limit, "Rows of the table; 0 for all")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--all", arguments->text.all, "Rows for what stays, too");
  command->footer(
      "Examples:\n  varve prune plan oci:images:v144 --usage usage.db -o v144.plan.json\n"
      "  varve prune plan oci:images:v144 --usage usage.db --keep images/keep/team.toml --previous v143.plan.json "
      "--archive-after 180d\n  varve prune plan oci:images:v144 --usage usage.db --gpu-arch sm_80,sm_90 -o "
      "v144.plan.json\n  varve prune plan oci:images:v144 --usage usage.db --explain bs4");
  command->callback([&context, arguments] { run_plan(context, *arguments); });
}

}  // namespace varve::cli
