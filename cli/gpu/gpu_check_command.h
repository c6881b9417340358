#pragma once
#include "cli/command.h"

namespace varve::cli {

void add_gpu_check_command(CLI::App& app, Context& context);

}  // namespace varve::cli
