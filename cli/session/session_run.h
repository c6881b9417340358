#pragma once
#include "cli/command.h"
#include "cli/session/run_options.h"

namespace varve::cli {

// `varve run` and `varve session start`: the session to its end, or with -d to its beginning. Returns the exit status:
// the command's, 0 for one that was left running, 125 with a message if Varve failed before it.
int run_as_asked(Context& context, RunOptions& options);

}  // namespace varve::cli
