#pragma once
// containerd.services.snapshots.v1 over Snapshots: requests become calls, errors become the codes that containerd acts
// on.
#include <cstddef>
#include <memory>

#include "core/base/files/unique_fd.h"
#include "core/metrics/metrics.h"
#include "snapshotter/snapshots.h"

namespace varve::snapshotter {

inline constexpr int kMaxMessageBytes = 16 << 20;  // as containerd has it
inline constexpr std::size_t kListBatch = 100;

// The gRPC server, without a listening socket of its own. Safe to use from any thread.
class SnapshotServer {
 public:
  // Both must outlive it; `metrics` gets what is counted, and asks `snapshots`.
  SnapshotServer(Snapshots& snapshots, MetricRegistry& metrics);
  // As end() with no time left.
  ~SnapshotServer();
  SnapshotServer(const SnapshotServer&) = delete;
  SnapshotServer& operator=(const SnapshotServer&) = delete;

  // Serves a connection that was accepted.
  void serve(UniqueFd connection);
  // Calls under way have `patience` to end.
  void end(std::chrono::milliseconds patience);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace varve::snapshotter
