#pragma once
// Decides where the spans of a layer begin. The planner looks only at the layer's bytes and calculates with integers,
// so the same layer gets the same spans on every machine.
//
// What a start-up reads is not known when an index is made, but it is not uniform either: it reads the heads and the
// writable data of shared libraries, whole small files, a page here and there in code, and next to nothing of large
// tables. ReadModel turns tar entries into such expectations; the planner cuts the stream so that the expected bytes
// fetched, plus a price for each span, are least (docs/design/index-pass.md).
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "core/base/bytes.h"

namespace varve::indexer {

// How often a start-up reads something, as a fixed-point number.
using ReadWeight = std::uint64_t;
inline constexpr ReadWeight kOnce = std::uint64_t(1) << 30;

// A place where decoding can begin.
struct SpanStart {
  std::uint64_t compressed_offset = 0;
  std::uint8_t bits = 0;  // gzip: as GzipBoundary
  std::uint64_t stream_offset = 0;
  bool member_start = false;         // gzip: a member's header is here
  std::uint32_t window_bytes = 0;    // so many stream bytes before it are needed to decode from here
  std::uint64_t compressed_gap = 0;  // so many bytes before it belong to no span (zstd: skippable frames)
  // Its window is the stream of the span before it, which is read first: it costs the index no window.
  bool follows = false;
  bool operator==(const SpanStart&) const = default;
};

struct SpanPolicy {
  // What a span costs, in compressed bytes that are worth fetching to avoid it. The one knob between index size and
  // bytes fetched. Of gzip layers it buys windows, of others only digests and offsets.
  std::uint64_t span_price_bytes = 13'000;
  std::uint64_t max_stream_bytes = 1920 * 1024;  // unless no boundary is nearer
  // Boundaries nearer to the one before are not looked at.
  std::uint64_t min_gap_bytes = 16 * 1024;
  // That a start-up loads some library, in thousandths.
  std::uint64_t library_likelihood = 200;
  // A longer span is cut further, into spans of at least this length that follow each other, so that who needs its
  // begin alone does not fetch its end. 0: nothing is.
  std::uint64_t follower_stream_bytes = 192 * 1024;
  // As span_price_bytes, of a span that follows another: it needs no window, but what a mount loads first grows by it.
  std::uint64_t follower_price_bytes = 10'000;
};

// Chooses among offered places: least expected cost over a sliding horizon of twice max_stream_bytes. One for each
// layer.
class SpanPlanner {
 public:
  explicit SpanPlanner(const SpanPolicy& policy) : policy_(policy) {}

  // Bytes that are read together or not at all, with that weight. Announced before places beyond `stream_begin` are
  // offered; what comes later counts from then on.
  void expect_whole(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight);
  // Bytes of which any place may be read, `weight_per_mib` times for each MiB.
  void expect_scattered(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight_per_mib);
  // The same for what is read only if a library is loaded, and then often: `weight_per_mib` times if it is. However
  // long a span there is, it is not more likely to be touched than policy.library_likelihood; short ones are with the
  // cube root of that, since reads come in clusters.
  void expect_in_library(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight_per_mib);

  // Places come in stream order; the first is the stream's start.
  void offer(const SpanStart& place);
  // The stream ends here: what is undecided is decided now.
  void finish(std::uint64_t compressed_end, std::uint64_t stream_end);
  // Starts decided since the last call, in order.
  std::vector<SpanStart> take_decided();
  // No start that is still to come lies before this place. Absent while everything offered is decided.
  const SpanStart* first_undecided() const;

 private:
  // A place with the sums that make the cost of a span between two places a difference.
  struct Place {
    SpanStart start;
    ReadWeight begun = 0;  // weights of wholes that begin before it
    ReadWeight ended = 0;  // weights of wholes that end at or before it
    ReadWeight scattered = 0;
    ReadWeight in_library = 0;
    std::uint64_t cost = 0;  // least cost from the first place to here
    std::size_t from = 0;    // the place before on that way
  };
  struct Event {
    std::uint64_t stream_offset = 0;
    ReadWeight weight = 0;
    bool operator>(const Event& other) const { return stream_offset > other.stream_offset; }
  };
  using Events = std::priority_queue<Event, std::vector<Event>, std::greater<>>;

  // The sum of a rate over the stream so far.
  class Rate {
   public:
    void add(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight_per_mib);
    ReadWeight sum_until(std::uint64_t stream_offset);

   private:
    void advance(std::uint64_t stream_offset);
    Events begins_;
    Events ends_;
    ReadWeight per_mib_ = 0;
    ReadWeight sum_ = 0;
    std::uint64_t until_ = 0;
  };

  Place measure(const SpanStart& start);
  void append(const SpanStart& start);
  void find_way(std::size_t to);
  std::uint64_t cost_of_span(const Place& begin, const Place& end) const;
  ReadWeight reads_between(const Place& begin, const Place& end) const;
  void decide(std::uint64_t until_stream_offset);
  void decide_followers(std::size_t begin, std::size_t end);

  SpanPolicy policy_;
  std::vector<Place> places_;  // [0] is the last decided start
  std::vector<SpanStart> decided_;
  Events begins_;
  Events ends_;
  Rate scattered_;
  Rate in_library_;
  ReadWeight begun_ = 0;
  ReadWeight ended_ = 0;
};

}  // namespace varve::indexer
