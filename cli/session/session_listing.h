#pragma once
// Sessions as `session ls` and `run -d` show them.
#include <string>

#include "cli/command.h"

namespace varve::cli {

// All that run or were kept: a table, or with --json "sessions".
void print_sessions(const Context& context);
// One by id: its name, or with --json what the list says of it. One that has gone already (--rm) has its id.
void print_session(const Context& context, const std::string& id);

}  // namespace varve::cli
