#pragma once
#include "cli/command.h"

namespace varve::cli {

// `help`, `man` and `completion`: all three speak about every other command, so they are added last.
void add_help_commands(CLI::App& app, Context& context);

}  // namespace varve::cli
