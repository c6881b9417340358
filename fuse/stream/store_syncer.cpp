#include "fuse/stream/store_syncer.h"

namespace varve::fuse {
namespace {

constexpr std::uint32_t kIdlePagesSeconds = 4;
constexpr std::chrono::seconds kPagesInterval{2};

}  // namespace

void StoreSyncer::add(const std::shared_ptr<FetchLayer>& layer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(layers_, [](const auto& known) { return known.expired(); });
  layers_.push_back(layer);
}

void StoreSyncer::remove(const std::shared_ptr<FetchLayer>& layer) {
  const std::lock_guard no_tick(tick_mutex_);
  const std::lock_guard lock(mutex_);
  std::erase_if(layers_, [&](const auto& known) { return known.lock() == layer; });
}

void StoreSyncer::wake() {
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || stopping_) return;
    busy_ = true;
    if (!thread_.joinable()) thread_ = std::jthread([this] { loop(); });
  }
  changed_.notify_one();
}

void StoreSyncer::stop() {
  std::jthread thread;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    thread.swap(thread_);
  }
  changed_.notify_one();
  if (thread.joinable()) thread.join();
  tick();
}

std::vector<std::shared_ptr<FetchLayer>> StoreSyncer::layers() {
  std::vector<std::shared_ptr<FetchLayer>> alive;
  const std::lock_guard lock(mutex_);
  for (const auto& known : layers_)
    if (auto layer = known.lock()) alive.push_back(std::move(layer));
  return alive;
}

// True while there is, or will be, something to bring to disk.
bool StoreSyncer::tick() {
  bool more = false;
  const std::lock_guard ticking(tick_mutex_);
  for (const auto& layer : layers()) {
    const bool fetching = layer->counters.fetching.load(std::memory_order_relaxed) > 0;
    layer->store.sync([&] { return layer->windows.sync(); });
    layer->store.drop_idle_pages(kIdlePagesSeconds);
    more = more || fetching || layer->store.unsynced_bytes() > 0;
  }
  return more;
}

void StoreSyncer::loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (busy_)
      changed_.wait_for(lock, interval_, [&] { return stopping_; });
    else if (drop_pages_)
      changed_.wait_for(lock, kPagesInterval, [&] { return stopping_ || busy_; });
    else
      changed_.wait(lock, [&] { return stopping_ || busy_; });
    if (stopping_) return;
    busy_ = false;  // a wake during the tick counts for the next
    lock.unlock();
    bool more = tick();
    more = after_round_() || more;
    lock.lock();
    busy_ = busy_ || more;
  }
}

}  // namespace varve::fuse
