#include "cli/prune/prune_command.h"

namespace varve::cli {
namespace {

// In the order of the help text. A subcommand is added here and, with its file, in CMakeLists.txt.
constexpr AddCommand kSubcommands[] = {
    add_prune_probe_command,
    add_prune_plan_command,
    add_prune_apply_command,
    add_prune_check_command,
};

}  // namespace

void add_prune_command(CLI::App& app, Context& context) {
  auto* prune = app.add_subcommand(
      "prune",
      "Moves what nobody uses out of the way: plans it by evidence, carries it out, and proves that nothing else has "
      "changed");
  prune->require_subcommand(1);
  prune->footer(
      "Example:\n  varve prune probe oci:images:v144 --usage usage.db\n  varve prune plan oci:images:v144 --usage "
      "usage.db -o v144.plan.json\n  varve prune plan oci:images:v144 --usage usage.db --explain bs4\n"
      "  varve prune check oci:image:v1 oci:image:v1-packed");
  for (const auto add : kSubcommands) add(*prune, context);
}

}  // namespace varve::cli
