#pragma once
// Fetches what start-ups of an image are known to read, in the order in which they read it, before they ask: behind
// whoever waits, a bounded amount at a time.
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "core/index/format/cold_ranges.h"
#include "core/index/format/profile.h"
#include "fuse/stream/layer_stream.h"
#include "fuse/stream/pieces_under_way.h"

namespace varve::fuse {

struct PrefetchOptions {
  // Compressed side. Of one window all is wanted at once, so that neighbours in a layer come in one request although
  // they are not read one after the other.
  std::uint64_t window_bytes = 8 << 20;
  std::uint64_t max_bytes_under_way = 32 << 20;  // asked for and not here yet
};

// A run of neighbouring spans.
struct PrefetchPiece {
  std::shared_ptr<LayerStream> layer;
  ByteRange stream_range;
  std::uint64_t compressed_bytes = 0;
  bool operator==(const PrefetchPiece&) const = default;
};

// What is to be fetched, in order: whole spans, each once, none that is present or lies wholly in what is cold.
// `profile` may name layers that are not given.
std::vector<PrefetchPiece> plan_prefetch(const std::vector<std::shared_ptr<LayerStream>>& layers,
                                         const index::Profile& profile, const index::ColdRanges& cold,
                                         const PrefetchOptions& options);

// Runs from its making to its end in a thread of its own. A failure ends it: readers ask for themselves.
class Prefetch {
 public:
  explicit Prefetch(std::vector<PrefetchPiece> pieces, const PrefetchOptions& options = {});
  // Wants nothing more; what is under way still arrives.
  ~Prefetch();

  // Compressed side: of spans that were not here when they were planned, and came.
  std::uint64_t fetched_bytes() const { return fetched_bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> fetched_bytes_ = 0;
  PiecesUnderWay under_way_;
  std::jthread thread_;
};

}  // namespace varve::fuse
