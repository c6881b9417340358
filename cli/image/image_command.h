#pragma once
// The subcommands of `varve image`, one file each.
#include "cli/command.h"

namespace varve::cli {

void add_image_diff_command(CLI::App& image, Context& context);
void add_image_export_command(CLI::App& image, Context& context);
void add_image_optimize_command(CLI::App& image, Context& context);

// Of what is on this machine: `varve images`.
void add_images_command(CLI::App& app, Context& context);

}  // namespace varve::cli
