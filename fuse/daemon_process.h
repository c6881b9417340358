#pragma once
// The daemon as a process: one per root, its signals, its readiness, its end.
#include <chrono>

#include "core/base/unique_fd.h"
#include "fuse/daemon.h"

namespace varve::fuse {

struct DaemonProcessOptions {
  DaemonOptions daemon;
  UniqueFd ready;                          // if there: "ok" or why not is written to it; else systemd is told (sd_notify)
  std::chrono::seconds idle_exit{0};       // ends when nothing was mounted for so long; 0: never
};

// Serves until SIGTERM, SIGINT or a shutdown request; then unmounts everything. Throws TemporaryError if another daemon serves the root.
void run_daemon(DaemonProcessOptions options);

// Tells the service manager (sd_notify(3)) if there is one: "READY=1", "STOPPING=1".
void notify_service_manager(std::string_view state);

}  // namespace varve::fuse
