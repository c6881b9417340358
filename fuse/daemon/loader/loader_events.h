#pragma once
// What readers, what has come and what became known tell the threads of a LoaderAhead (loader_ahead.h).
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "core/base/byte_range.h"
#include "fuse/daemon/loader/device_place.h"

namespace varve::fuse {

// What its threads wait for; outlives them while something is under way.
struct LoaderEvents {
  enum class Kind : std::uint8_t { kStep, kTables, kData, kInitCode, kBytecode };  // kStep: what its next step needs
  struct Arrival {
    Kind kind = Kind::kStep;
    std::size_t file = 0;     // number of the library, or of the module
    std::uint64_t bytes = 0;  // of other kinds than kStep
    bool failed = false;
  };
  // Since the thread looked last.
  struct News {
    bool imports_came = false;                     // they are known
    std::vector<std::size_t> begun;                // heads
    std::vector<std::size_t> imported;             // modules
    std::vector<std::uint32_t> packages;           // groups of modules
    std::vector<std::vector<DeviceExtent>> exits;  // what each is about to run
    std::vector<std::size_t> relocating;           // libraries
    std::vector<Arrival> arrived;
    bool any() const {
      return imports_came || !begun.empty() || !imported.empty() || !packages.empty() || !exits.empty() ||
             !relocating.empty() || !arrived.empty();
    }
  };
  struct Awaited {
    std::uint64_t length = 0;
    std::size_t library = 0;
  };
  std::mutex mutex;
  std::condition_variable_any changed;
  News news;
  std::vector<std::pair<std::uint32_t, ByteRange>> early;  // reads before all was known
  std::map<DevicePlace, Awaited> awaited;                  // relocations that only a loader reads
  std::atomic<bool> any_awaited = false;

  // To one of the lists of `news`.
  template <typename T>
  void add(std::vector<T>& list, T one) {
    const std::lock_guard guard(mutex);
    list.push_back(std::move(one));
    changed.notify_one();
  }
  // Waits for news and takes them; none when it is to stop.
  std::optional<News> next(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    if (!changed.wait(lock, stop, [&] { return news.any(); }) || stop.stop_requested()) return std::nullopt;
    return std::exchange(news, {});
  }
};

}  // namespace varve::fuse
