#pragma once
// Pages that the kernel has kept of mounted files since the store was damaged. A span that is repaired reaches nobody
// who reads a page that was cached before: such pages are dropped, and what the mounts then show is compared with the
// store.
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/threads/cancel.h"
#include "core/base/threads/guarded.h"
#include "fuse/control/control_messages.h"
#include "fuse/daemon/served_image.h"

namespace varve::fuse {

// An image and where the daemon has it mounted.
struct MountedServed {
  std::shared_ptr<ServedImage> image;
  std::filesystem::path dir;
};

// Safe to use from any thread. Remembers what was damaged, in a file beside the mounts: another daemon may follow.
class StalePages {
 public:
  // A record that cannot be read is a line in the log.
  explicit StalePages(std::filesystem::path record);

  // Spans that were found damaged, of layers that these mounts show. Others need no note. Throws std::system_error.
  void note(const LayerStream& stream, const std::vector<ByteRange>& bad, const std::vector<MountedServed>& mounts);

  // Drops the pages of what was noted of these streams and reads it anew through the mounts. Forgets what all of them
  // show right; the rest is returned, mount by mount, and tried again by the next call. Throws Cancelled.
  std::vector<StaleMount> drop(const std::vector<std::shared_ptr<LayerStream>>& streams,
                               const std::vector<MountedServed>& mounts, const CancelFlag& cancel);

 private:
  struct Noted {
    Digest layer;
    Digest map;
    ByteRange range;  // stream side
    bool operator==(const Noted&) const = default;
  };
  void write(const std::vector<Noted>& noted) const;

  const std::filesystem::path record_;
  Guarded<std::vector<Noted>> noted_;
};

}  // namespace varve::fuse
