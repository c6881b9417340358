#include <algorithm>
#include <map>
#include <memory>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/report/text.h"
#include "cli/base/open_image.h"
#include "cli/prune/kept_probe.h"
#include "cli/prune/prune_command.h"
#include "cli/usage/usage_database.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using usage::ProbedItem;
using usage::ProbeEdge;

constexpr std::size_t kShownFailures = 20;

struct ProbeArguments {
  std::string image, database;
  bool again = false;
  unsigned jobs = 0;
};

struct Tally {
  std::size_t started = 0, failed = 0;
};

bool did_not_work(const ProbedItem& item) {
  return item.outcome != "ok" && item.outcome != "runs" && item.outcome != "exit 0";
}

std::map<usage::ProbedKind, Tally> tallies(const usage::Probe& probe) {
  std::map<usage::ProbedKind, Tally> of;
  for (const auto& item : probe.items) {
    ++of[item.kind].started;
    of[item.kind].failed += did_not_work(item);
  }
  return of;
}

std::map<std::string, std::size_t> edge_counts(const usage::Probe& probe) {
  std::map<std::string, std::size_t> counts{{"loads", 0}, {"tries", 0}, {"runs", 0}};
  for (const auto& edge : probe.edges) ++counts[std::string(usage::probe_edge_name(edge.kind))];
  return counts;
}

json to_json(const KeptProbe& kept) {
  const auto& probe = kept.probe;
  auto items = json::array(), edges = json::array();
  for (const auto& item : probe.items)
    items.push_back({{"kind", usage::probed_kind_name(item.kind)},
                     {"name", item.name},
                     {"distribution", item.distribution},
                     {"outcome", item.outcome},
                     {"detail", item.detail}});
  for (const auto& edge : probe.edges) {
    const auto& from = probe.items.at(edge.item);
    edges.push_back({{"kind", usage::probe_edge_name(edge.kind)},
                     {"from", from.name},
                     {"from_kind", usage::probed_kind_name(from.kind)},
                     {"from_distribution", from.distribution},
                     {"to", edge.to},
                     {"to_distribution", edge.to_distribution}});
  }
  json counts(edge_counts(probe));
  for (const auto& [kind, tally] : tallies(probe))
    counts["started"][std::string(usage::probed_kind_name(kind))] = {{"all", tally.started}, {"failed", tally.failed}};
  return {{"image", probe.image.to_string()}, {"day", day_text(probe.day)},  {"kept", !kept.made},
          {"seconds", kept.seconds},          {"counts", std::move(counts)}, {"items", std::move(items)},
          {"edges", std::move(edges)}};
}

void print(const KeptProbe& kept, std::ostream& out) {
  const auto& probe = kept.probe;
  out << fmt::format("{}  {}\n", probe.image.to_string(),
                     kept.made ? fmt::format("probed in {:.1f} s, and kept", kept.seconds)
                               : fmt::format("kept since {}; --again makes it anew", day_text(probe.day)));
  for (const auto& [kind, tally] : tallies(probe))
    out << fmt::format("  {:<17} {:>6}{}\n", usage::probed_kind_name(kind), report::number_text(tally.started),
                       tally.failed == 0 ? "" : fmt::format(", {} did not work", report::number_text(tally.failed)));
  for (const auto& [kind, count] : edge_counts(probe))
    out << fmt::format("  edges {:<11} {:>6}\n", kind, report::number_text(count));
  std::size_t shown = 0, left_out = 0;
  for (const auto& item : probe.items) {
    if (!did_not_work(item)) continue;
    if (shown++ >= kShownFailures) {
      ++left_out;
      continue;
    }
    out << fmt::format("{} {}: {}{}\n", usage::probed_kind_name(item.kind), printable(item.name),
                       printable(item.outcome), item.detail.empty() ? "" : ": " + visible(item.detail, 100));
  }
  if (left_out != 0) out << fmt::format("and {} more that did not work, all in --json\n", left_out);
}

void run_probe(Context& context, const ProbeArguments& arguments) {
  const auto opened = open_indexed(context, arguments.image);
  const auto database = open_or_make_database(context, arguments.database);
  const auto kept = kept_probe(context, *database, arguments.image, opened, arguments.again, arguments.jobs);
  context.global.json ? context.print_json(to_json(kept)) : print(kept, context.out);
}

}  // namespace

void add_prune_probe_command(CLI::App& prune, Context& context) {
  const auto arguments = std::make_shared<ProbeArguments>();
  auto* command = prune.add_subcommand(
      "probe",
      "Start everything of an image once, each alone: imports, scripts, kernels, extensions. What they load is kept "
      "for plans");
  command->add_option("IMAGE", arguments->image, "The image; it must be indexed")->required();
  command
      ->add_option(
          "--usage", arguments->database,
          "The usage database that keeps it: a file, or postgresql://...; usage.db under --root if none is given")
      ->type_name("DB");
  command->add_flag("--again", arguments->again, "Though the database has one of this very image");
  command->add_option("--jobs", arguments->jobs, "Processes at the same time; 0: as many as cores")
      ->type_name("N")
      ->capture_default_str();
  command->footer(
      "What runs is the image's own, in sessions without network of which nothing stays.\n\nExamples:\n"
      "  varve prune probe oci:images:v144 --usage usage.db\n  varve prune probe oci:images:v144 --usage usage.db "
      "--again --json");
  command->callback([&context, arguments] { run_probe(context, *arguments); });
}

}  // namespace varve::cli
