#pragma once
// What the thread of a LoaderAhead fetches of a tree's devices, and reads of what has come.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/index/format/erofs.h"
#include "fuse/daemon/loader/device_place.h"
#include "fuse/daemon/loader/loader_events.h"
#include "fuse/mount/stream_file.h"

namespace varve::fuse {

// Of that thread alone. All is read-ahead: behind whoever waits.
class AheadFetcher {
 public:
  // Over the life of one: no hostile tree can have more. Stream side, wanted.
  static constexpr std::uint64_t kMaxBytes = 4ull << 30;

  // devices[i] is device i+1 of the tree, and outlives this.
  AheadFetcher(const std::vector<std::shared_ptr<StreamFile>>& devices, std::shared_ptr<LoaderEvents> events)
      : devices_(devices), events_(std::move(events)) {}

  std::vector<StreamPiece> pieces(const std::vector<index::DeviceRun>& runs, ByteRange in_file) const;
  // Adds the arrival to the events when all are here, or one could not be had.
  void fetch(const std::vector<StreamPiece>& pieces, const LoaderEvents::Arrival& arrival);
  // For others to read: nothing is told.
  void fetch_now(const std::vector<StreamPiece>& pieces);
  void fetch_now(const std::vector<DeviceExtent>& parts);
  // Absent if it is not here (any more).
  std::optional<Bytes> read(const std::vector<index::DeviceRun>& runs, ByteRange in_file) const;

 private:
  bool take_from_budget(std::uint64_t bytes);

  const std::vector<std::shared_ptr<StreamFile>>& devices_;
  const std::shared_ptr<LoaderEvents> events_;
  std::uint64_t budget_ = kMaxBytes;
};

}  // namespace varve::fuse
