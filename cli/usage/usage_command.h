#pragma once
// The subcommands of `varve usage`: one file each (usage_NAME_command.cpp), and a line here and in the table of
// usage_command.cpp.
#include "cli/command.h"

namespace varve::cli {

void add_usage_scan_command(CLI::App& usage, Context& context);
void add_usage_recorder_command(CLI::App& usage, Context& context);
void add_usage_collect_command(CLI::App& usage, Context& context);
void add_usage_report_command(CLI::App& usage, Context& context);
void add_usage_explain_command(CLI::App& usage, Context& context);
void add_usage_age_command(CLI::App& usage, Context& context);
void add_usage_roles_command(CLI::App& usage, Context& context);

}  // namespace varve::cli
