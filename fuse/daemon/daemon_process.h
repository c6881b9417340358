#pragma once
// The daemon as a process: one per root, its signals, its readiness, its end.
#include <chrono>
#include <optional>

#include "core/base/files/unique_fd.h"
#include "core/http/listen_address.h"
#include "fuse/daemon/daemon.h"

namespace varve::fuse {

struct DaemonProcessOptions {
  DaemonOptions daemon;
  UniqueFd ready;  // if there: "ok" or why not is written to it; else systemd is told (sd_notify)
  std::optional<ListenAddress>
      metrics;                        // where they are shown; absent: none are kept. `daemon.metrics` need not be set
  std::chrono::seconds idle_exit{0};  // ends when nothing was mounted for so long; 0: never
  // The words of the command line, program first: by which this daemon is started again, and by which its keeper
  // (keeper.h) is started; the keeper's listening socket is then its standard input. Without the latter there is no
  // keeper.
  std::vector<std::string> words;
  std::vector<std::string> keeper_words;
};

// Serves until a shutdown request; until SIGTERM or SIGINT, once nothing that it serves is used any more, or at once if
// a service manager keeps what is (DescriptorStore) for the next daemon. On a replace request another program is
// executed in this process. `daemon.descriptors` need not be set. Throws TemporaryError if another daemon serves the
// root.
void run_daemon(DaemonProcessOptions options);

}  // namespace varve::fuse
