#pragma once
// `-d`: a session that goes on without whoever started it.
#include <functional>
#include <string>

#include "cli/command.h"

namespace varve::cli {

// Calls `run` in a process of its own that belongs to no terminal, and returns when that says by `on_ready` that the
// session of this id runs (its name is printed, with --json all that `session ls` says of it; 0), or has ended without
// (its status). `run` is in charge of the session from before the daemon is asked for the image: a lease is its
// process's. Call from a process with one thread; in the new process this returns too, with the status of `run`.
int run_detached(Context& context,
                 const std::function<int(const std::function<void(const std::string& id)>& on_ready)>& run);

}  // namespace varve::cli
