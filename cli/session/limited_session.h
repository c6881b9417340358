#pragma once
#include <chrono>

#include "core/base/threads/cancel.h"
#include "fuse/session/session.h"

namespace varve::cli {

// Runs a session in a process of its own, which is ended when the time is up and killed if it does not end. Returns the
// command's exit status, 124 if it had to be ended. Call it from a process with one thread. Throws Cancelled.
int run_limited_session(const fuse::SessionRequest& request, std::chrono::seconds limit, const CancelFlag& cancel);

}  // namespace varve::cli
