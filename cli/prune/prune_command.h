#pragma once
// The subcommands of `varve prune`: one file each (prune_NAME_command.cpp), and a line here and in the table of
// prune_command.cpp.
#include "cli/command.h"

namespace varve::cli {

void add_prune_apply_command(CLI::App& prune, Context& context);
void add_prune_check_command(CLI::App& prune, Context& context);
// The same gates as `varve image check`.
void add_image_check_command(CLI::App& image, Context& context);
void add_prune_plan_command(CLI::App& prune, Context& context);
void add_prune_probe_command(CLI::App& prune, Context& context);

}  // namespace varve::cli
