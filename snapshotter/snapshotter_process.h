#pragma once
// The snapshotter as a process: its socket, its signals, its end.
#include <filesystem>
#include <string>

#include "snapshotter/daemon_trees.h"

namespace varve::snapshotter {

struct SnapshotterOptions {
  std::filesystem::path address;  // of the socket, unless the service manager gives one (LISTEN_FDS)
  std::string group;              // who may call besides root; "": nobody
  std::filesystem::path dir;      // ROOT/snapshotter
  DaemonTreesOptions trees;
  std::string metrics;  // where numbers are shown (core/metrics/metrics_server.h); "": nowhere
};

// Serves until SIGTERM or SIGINT; then calls under way have a few seconds to end. What is mounted stays. Throws
// TemporaryError if another process serves the folder.
void run_snapshotter(const SnapshotterOptions& options);

}  // namespace varve::snapshotter
