#pragma once
// Keeps the store below its size: what was not used for longest goes first, layers nobody has open as a whole, spans of
// open ones one by one.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fuse/stream/fetch_layer.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// A layer folder that no stream has open.
struct ClosedLayer {
  std::string name;
  std::uint32_t idle_seconds = 0;
  std::uint64_t bytes = 0;  // on disk
};

// What the limit asks of whoever owns the streams.
class StoreContents {
 public:
  virtual ~StoreContents() = default;
  virtual std::vector<std::shared_ptr<FetchLayer>> open_layers() = 0;
  virtual std::vector<ClosedLayer> closed_layers() = 0;
  // Removes the folder unless somebody opened the layer meanwhile; says whether it did.
  virtual bool remove_closed(const std::string& name) = 0;
  virtual std::uint64_t bytes_on_disk() = 0;
};

// enforce() is called by one thread, the rest by any.
class StoreLimit {
 public:
  explicit StoreLimit(const StoreLimitOptions& options, std::shared_ptr<StreamMetrics> metrics = nullptr)
      : options_(options), metrics_(std::move(metrics)) {}

  // A reader had to fetch: until the store is small enough again, what is idle for a short time may go as well.
  void note_reader() { reader_waited_.store(true, std::memory_order_relaxed); }
  // The store is full of what may not go for background work; asked before it fetches.
  bool full() const { return full_.load(std::memory_order_relaxed); }
  std::uint64_t max_bytes() const { return options_.max_bytes; }

  // Looks, and evicts. True if it should be called again soon, as something is on its way out. Failures of the disk are
  // logged.
  bool enforce(StoreContents& contents);

 private:
  struct Leaving {
    std::weak_ptr<FetchLayer> layer;
    std::vector<std::uint32_t> spans;
    std::uint64_t bytes = 0;
    std::uint32_t began = 0;
  };
  struct Candidate {
    std::uint32_t idle_seconds = 0;
    std::uint64_t bytes = 0;
    std::shared_ptr<FetchLayer> layer = nullptr;  // null: a closed one
    std::uint32_t span = 0;
    std::string closed = {};
  };

  void finish_leaving(std::uint32_t now);
  static std::vector<Candidate> candidates(StoreContents& contents, std::uint32_t min_idle, std::uint32_t now);
  std::uint64_t take(StoreContents& contents, const std::vector<Candidate>& oldest_first, std::uint64_t wanted,
                     std::uint32_t now);

  void note_evicted(std::uint64_t bytes) const;

  const StoreLimitOptions options_;
  const std::shared_ptr<StreamMetrics> metrics_;
  std::atomic<bool> reader_waited_ = false;
  std::atomic<bool> full_ = false;
  std::vector<Leaving> leaving_;
  bool crowded_ = false;  // the last look found no room
};

}  // namespace varve::fuse
