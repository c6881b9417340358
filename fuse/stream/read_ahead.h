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
  enum class Why : std::uint8_t {
    kReadsOn,    // somebody goes through the stream
    kFollows,    // it follows what was missed: what is read of one file lies close together
    kNeighbour,  // of a lone span, worth it only on an idle link
  };
  struct Ahead {
    std::size_t first = 0, last = 0;  // spans [first, last)
    Why why = Why::kNeighbour;
  };

  // Of a reader that goes on at most `max_bytes` are fetched ahead (stream side), and no more than half of what it has
  // read in one run: a loader goes through a library's tables, and then on elsewhere. 0: nothing is fetched ahead.
  ReadAhead(const index::LayerMap& map, std::uint64_t max_bytes) : map_(map), max_bytes_(max_bytes) {}

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
    std::size_t ahead_to = 0;       // one past the last span asked for
    std::uint64_t last_use = 0;     // 0: not in use
  };

  Sequence& sequence_of(ByteRange stream_range, bool& known);
  std::optional<Ahead> advance(Sequence& sequence, std::size_t span);
  std::optional<Ahead> around(std::size_t span, bool alone) const;
  bool is_cold(std::size_t span) const { return !cold_.empty() && cold_[span]; }

  const index::LayerMap& map_;
  const std::uint64_t max_bytes_;
  std::mutex mutex_;
  std::array<Sequence, 16> sequences_;  // several readers go through one layer at a time
  std::uint64_t uses_ = 0;
  std::map<Digest, std::vector<bool>> cold_of_;  // by image; empty: nothing
  std::vector<bool> cold_;                       // by span, what all of them agree on; empty: nothing
};

}  // namespace varve::fuse
