#include "cli/usage/usage_command.h"

#include <vector>

namespace varve::cli {
namespace {

// In the order of the help text. A subcommand is added here and, with its file, in CMakeLists.txt.
const std::vector<AddCommand> kSubcommands = {
    add_usage_scan_command,    add_usage_recorder_command, add_usage_collect_command, add_usage_report_command,
    add_usage_explain_command, add_usage_age_command,      add_usage_roles_command,
};

}  // namespace

void add_usage_command(CLI::App& app, Context& context) {
  auto* usage =
      app.add_subcommand("usage", "Who uses what: what notebooks say, what sessions did, and the report on both");
  usage->require_subcommand(1);
  usage->footer("Example:\n  varve usage scan notebooks/\n  varve usage report --db usage.db");
  for (const auto add : kSubcommands) add(*usage, context);
}

}  // namespace varve::cli
