#pragma once
// Where in a tree the code of libraries lies that runs when a process exits, and who seems to be running it. It takes
// much of a cold short program: each of the thousands of functions that CUDA's libraries register lies near the code
// that it belongs to, so an exit goes through all of a library, from its end to its start, part by part.
//
// Who reads three parts of a library in the order in which an exit runs them, with next to none between, is taken to
// exit. It goes on with the libraries that were started before that one, the last of them first (atexit(3)).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/byte_range.h"
#include "fuse/daemon/loader/device_place.h"

namespace varve::fuse {

// Safe to use from any thread.
class ExitTable {
 public:
  static constexpr std::size_t kMaxParts = 65'536;  // of all libraries; of those behind nothing is known

  // What one library runs at exit, in that order. `turn`: of the library, in the order in which they start; each has
  // another.
  void add(std::size_t turn, const std::vector<DeviceExtent>& parts);
  // Somebody reads that of a device. If that is an exit: what it is about to run, in order; each part is told once.
  std::vector<DeviceExtent> note_read(std::uint32_t device, ByteRange device_range);

 private:
  struct Library {
    std::vector<DeviceExtent> parts;  // empty once they were told
    std::size_t next = 0;             // an exit would go on there
    unsigned reads = 0;               // that went on
  };
  struct Place {
    std::size_t library = 0, part = 0;
  };

  std::vector<DeviceExtent> take_from(std::size_t library);

  std::atomic<bool> any_ = false;
  std::mutex mutex_;
  std::map<std::size_t, Library> libraries_;  // by turn; of which not all was told
  std::map<DevicePlace, Place> places_;       // of what was not told
};

}  // namespace varve::fuse
