#pragma once
// Brings what was fetched to disk in groups: one sync for many spans costs little more than for one.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fuse/stream/fetch_layer.h"

namespace varve::fuse {

// Safe to use from any thread.
class StoreSyncer {
 public:
  // `drop_pages`: the stores' page caches are looked after as well (SpanStoreOptions::drop_pages).
  StoreSyncer(std::chrono::milliseconds interval, bool drop_pages) : interval_(interval), drop_pages_(drop_pages) {}
  ~StoreSyncer() { stop(); }
  // Called by the thread after each round, without locks; true: there is more to do soon. Before the first wake().
  void set_after_round(std::function<bool()> after_round) { after_round_ = std::move(after_round); }

  void add(const std::shared_ptr<FetchLayer>& layer);
  // Forgets a layer; when this returns, it is not held here any more.
  void remove(const std::shared_ptr<FetchLayer>& layer);
  // Fetching begins: from now on, and until all that was fetched is on disk, there is work. Starts the thread.
  void wake();
  // Syncs a last time and ends the thread.
  void stop();

 private:
  void loop();
  std::vector<std::shared_ptr<FetchLayer>> layers();
  bool tick();

  std::mutex tick_mutex_;  // held over the I/O of a tick, so that remove() can wait for its end
  const std::chrono::milliseconds interval_;
  const bool drop_pages_;
  std::function<bool()> after_round_ = [] { return false; };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<FetchLayer>> layers_;
  bool busy_ = false;
  bool stopping_ = false;
  std::jthread thread_;
};

}  // namespace varve::fuse
