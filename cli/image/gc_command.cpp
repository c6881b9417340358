#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/base/errors.h"
#include "core/base/text/units.h"
#include "indexer/collect_garbage.h"
#include "indexer/known_pins.h"

namespace varve::cli {
namespace {

struct GcArguments {
  std::string place;
  indexer::GarbageOptions options;
  double grace_hours = double(indexer::kDefaultGraceSeconds) / 3600;
};

void run_gc(const Context& context, GcArguments& arguments) {
  const auto reference = oci::Reference::parse(arguments.place);
  if (reference.kind != oci::Reference::Kind::kLayout)
    fail<UsageError>(
        "{}: a registry collects its own garbage, and keeps what the list of pins names; remove tags there",
        arguments.place);
  if (reference.tag || reference.digest)
    fail<UsageError>("{}: write the folder alone, without tag or digest", arguments.place);
  arguments.options.grace_seconds = std::int64_t(arguments.grace_hours * 3600);
  arguments.options.known_pins = indexer::KnownPins(context.global.root).pins_of(indexer::place_of(reference));
  const auto report = indexer::collect_garbage(reference.layout_dir, arguments.options);
  auto removed = nlohmann::json::array();
  for (const auto& digest : report.removed) removed.push_back(digest.to_string());
  if (context.global.json)
    return context.print_json({{"removed", std::move(removed)},
                               {"freed_bytes", report.freed_bytes},
                               {"kept_bytes", report.kept_bytes},
                               {"young_bytes", report.young_bytes},
                               {"dry_run", arguments.options.dry_run}});
  if (context.global.verbose > 0 || arguments.options.dry_run) {
    for (const auto& digest : report.removed) context.out << digest.to_string() << "\n";
  }
  context.out << fmt::format("{} {} blobs, {}; {} kept, {} unreached but younger than {} h\n",
                             arguments.options.dry_run ? "would remove" : "removed", report.removed.size(),
                             human_bytes(report.freed_bytes), human_bytes(report.kept_bytes),
                             human_bytes(report.young_bytes), arguments.grace_hours);
}

}  // namespace

void add_gc_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<GcArguments>();
  auto* command = app.add_subcommand("gc", "Frees what no tag, pin or index reaches in an OCI layout folder");
  command->add_option("FOLDER", arguments->place, "oci:DIR")->required();
  command->add_flag("--dry-run", arguments->options.dry_run, "Only say what would go");
  command->add_flag("--untagged", arguments->options.untagged, "Images without a name go too, unless pinned");
  command
      ->add_option("--grace", arguments->grace_hours, "Leave blobs younger than so many hours: a push may be under way")
      ->type_name("HOURS")
      ->check(CLI::Range(0.0, 24.0 * 365))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  varve gc --dry-run oci:images\n"
      "  varve gc --untagged oci:images\n\n"
      "Locks out other Varve processes while it runs. If a document that is reached is missing or damaged, nothing is "
      "removed.\n"
      "The same if the list of pins lacks what this machine knows of: `varve pin repair` puts it back.");
  command->callback([&context, arguments] { run_gc(context, *arguments); });
}

}  // namespace varve::cli
