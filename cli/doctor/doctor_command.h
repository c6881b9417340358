#pragma once
#include "cli/command.h"

namespace varve::cli {

void add_doctor_command(CLI::App& app, Context& context);

}  // namespace varve::cli
