#pragma once
// What readers, what has come and what became known tell the threads of a LoaderAhead.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"
#include "fuse/daemon/loader/device_place.h"
#include "fuse/daemon/loader/loader_ahead.h"

namespace varve::fuse {

// What its threads wait for; outlives them while something is under way.
struct LoaderAhead::Events {
  enum class Kind : std::uint8_t { kStep, kTables, kData, kInitCode, kBytecode };  // kStep: what its next step needs
  struct Arrival {
    Kind kind = Kind::kStep;
    std::size_t library = 0;  // or module
    std::uint64_t bytes = 0;  // of the others
    bool failed = false;
  };
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<std::pair<std::uint32_t, ByteRange>> early;  // reads before all was known
  bool imports_came = false;                               // they are known since it was looked
  std::vector<std::size_t> begun;                          // heads
  std::vector<std::size_t> imported;                       // modules
  std::vector<std::uint32_t> packages;                     // groups of modules
  std::vector<std::vector<DeviceExtent>> exits;            // what each is about to run
  std::vector<std::size_t> relocating;                     // libraries
  struct Awaited {
    std::uint64_t length = 0;
    std::size_t library = 0;
  };
  std::map<DevicePlace, Awaited> awaited;  // relocations that only a loader reads
  std::atomic<bool> any_awaited = false;
  std::vector<Arrival> arrived;

  // To one of the lists.
  template <typename T>
  void add(std::vector<T>& list, T one) {
    const std::lock_guard guard(mutex);
    list.push_back(std::move(one));
    changed.notify_one();
  }
};

}  // namespace varve::fuse
