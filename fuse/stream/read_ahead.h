#pragma once
// Guesses from what is read of a layer stream which spans will be read next.
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/digest.h"
#include "core/index/format/layer_map.h"

namespace varve::fuse {

// One per layer. Safe to use from any thread. `map` must outlive it.
class ReadAhead {
 public:
  struct Ahead {
    std::size_t first = 0, last = 0;  // spans [first, last)
    bool sequential = false;  // somebody reads on; else the neighbour of a lone span, worth it only on an idle link
  };

  // A span and those that follow it count as one of `max_spans`.
  ReadAhead(const index::LayerMap& map, unsigned max_spans) : map_(map), max_spans_(max_spans) {}

  // A reader reads this range; `missed` if part of it was not in the store. Returns what to fetch ahead, nothing most
  // of the time. What was returned once for a sequence is not returned again.
  std::optional<Ahead> on_read(ByteRange stream_range, bool missed);

  // As LayerStream::note_cold(): a reader of something else is not followed into what is cold; one that is in there is.
  void note_cold(const Digest& image, const std::vector<ByteRange>& stream_ranges);

 private:
  // A reader that goes on through the stream.
  struct Sequence {
    std::uint64_t next_offset = 0;  // where it would read on
    std::uint64_t run_bytes = 0;    // read in one run up to there
    std::size_t window = 0;         // spans fetched ahead of it; 0 until it is known to be sequential
    std::size_t ahead_to = 0;       // one past the last span asked for
    std::uint64_t last_use = 0;     // 0: not in use
  };

  Sequence& sequence_of(ByteRange stream_range, bool& known);
  std::optional<Ahead> advance(Sequence& sequence, std::size_t span_before, std::size_t span);
  std::size_t behind(std::size_t span, std::size_t count) const;
  bool is_cold(std::size_t span) const { return !cold_.empty() && cold_[span]; }

  const index::LayerMap& map_;
  const std::size_t max_spans_;
  std::mutex mutex_;
  std::array<Sequence, 16> sequences_;  // several readers go through one layer at a time
  std::uint64_t uses_ = 0;
  std::map<Digest, std::vector<bool>> cold_of_;  // by image; empty: nothing
  std::vector<bool> cold_;                       // by span, what all of them agree on; empty: nothing
};

}  // namespace varve::fuse
