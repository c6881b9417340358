#pragma once
// The keeper: a small process beside the daemon that holds the descriptors of its FUSE connections, so that a
// connection outlives the daemon, and that starts the daemon again when it dies without a goodbye. It never reads from
// a descriptor. docs/design/staying-alive.md.
#include <chrono>
#include <filesystem>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

struct KeeperOptions {
  UniqueFd listener;               // of the socket that daemons come to
  std::filesystem::path log_file;  // what a daemon that it starts writes to
  unsigned max_deaths = 5;         // of the daemon within `window`; one more and the connections are given up
  std::chrono::seconds window{60};
  std::chrono::seconds successor_patience{20};  // for the program that takes the place of a daemon
};

// Waits for the first daemon. Serves until it holds nothing and no daemon is connected, until a daemon says goodbye, or
// until the daemon died too often. Connections that are given up end: their readers get ENOTCONN. Only processes of the
// same user are listened to. Uses no threads.
void run_keeper(KeeperOptions options);

}  // namespace varve::fuse
