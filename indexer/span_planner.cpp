#include "indexer/span_planner.h"

#include <algorithm>
#include <array>
#include <utility>

namespace varve::indexer {
namespace {

constexpr unsigned kMibBits = 20;
// Sums are shortened by so much before they are multiplied with byte counts, so that 64 bits suffice.
constexpr unsigned kWeightShift = 10;
constexpr ReadWeight kOne = kOnce >> kWeightShift;
constexpr ReadWeight kMostWeight = kOnce << 6;
constexpr std::uint64_t kLeastFollowedBytes = 64 * 1024;  // a deflate window and more

// Cube roots of n / kRootSteps, as fixed-point numbers of kOnce >> kWeightShift.
constexpr std::size_t kRootSteps = 256;
constexpr auto kRoots = [] {
  std::array<ReadWeight, kRootSteps + 1> roots{};
  for (std::size_t n = 0; n <= kRootSteps; ++n) {
    ReadWeight low = 0;
    for (ReadWeight high = kOne; low < high;) {
      const auto middle = (low + high + 1) / 2;
      const auto cube = middle * middle / kOne * middle / kOne;
      if (cube <= n * (kOne / kRootSteps)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    roots[n] = low;
  }
  return roots;
}();

}  // namespace

void SpanPlanner::expect_whole(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight) {
  if (stream_end <= stream_begin || weight == 0) return;
  begins_.push({.stream_offset = stream_begin, .weight = weight});
  ends_.push({.stream_offset = stream_end, .weight = weight});
}

void SpanPlanner::expect_scattered(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight_per_mib) {
  scattered_.add(stream_begin, stream_end, weight_per_mib);
}

void SpanPlanner::expect_in_library(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight_per_mib) {
  in_library_.add(stream_begin, stream_end, weight_per_mib);
}

void SpanPlanner::Rate::add(std::uint64_t stream_begin, std::uint64_t stream_end, ReadWeight weight_per_mib) {
  if (stream_end <= stream_begin || weight_per_mib == 0) return;
  begins_.push({.stream_offset = stream_begin, .weight = weight_per_mib});
  ends_.push({.stream_offset = stream_end, .weight = weight_per_mib});
}

void SpanPlanner::Rate::advance(std::uint64_t stream_offset) {
  if (stream_offset <= until_) return;
  sum_ += (stream_offset - until_) * (per_mib_ >> kWeightShift) >> (kMibBits - kWeightShift);
  until_ = stream_offset;
}

ReadWeight SpanPlanner::Rate::sum_until(std::uint64_t stream_offset) {
  while (true) {
    const bool begins = !begins_.empty() && begins_.top().stream_offset <= stream_offset;
    const bool ends = !ends_.empty() && ends_.top().stream_offset <= stream_offset;
    if (!begins && !ends) break;
    // At one offset beginnings come first, so that the rate never falls below zero.
    if (begins && (!ends || begins_.top().stream_offset <= ends_.top().stream_offset)) {
      advance(begins_.top().stream_offset);
      per_mib_ += begins_.top().weight;
      begins_.pop();
    } else {
      advance(ends_.top().stream_offset);
      per_mib_ -= ends_.top().weight;
      ends_.pop();
    }
  }
  advance(stream_offset);
  return sum_;
}

SpanPlanner::Place SpanPlanner::measure(const SpanStart& start) {
  const auto at = start.stream_offset;
  while (!begins_.empty() && begins_.top().stream_offset < at) {
    begun_ += begins_.top().weight;
    begins_.pop();
  }
  while (!ends_.empty() && ends_.top().stream_offset <= at) {
    ended_ += ends_.top().weight;
    ends_.pop();
  }
  return {.start = start,
          .begun = begun_,
          .ended = ended_,
          .scattered = scattered_.sum_until(at),
          .in_library = in_library_.sum_until(at)};
}

// How often a start-up reads of what lies between, as parts of kOne.
ReadWeight SpanPlanner::reads_between(const Place& begin, const Place& end) const {
  const auto in_library = std::min(end.in_library - begin.in_library, kOnce) / (kOnce / kRootSteps);
  const auto library = kRoots[in_library] * policy_.library_likelihood / 1000;
  const auto whole = end.begun - std::min(end.begun, begin.ended);
  return (std::min(whole + (end.scattered - begin.scattered), kMostWeight) >> kWeightShift) + library;
}

// Expected bytes: the span's compressed bytes times how likely it is touched. With reads independent of each other that
// is 1 - e^-q; q / (1 + q) rises alike and needs only integers, which are the same on every machine.
std::uint64_t SpanPlanner::cost_of_span(const Place& begin, const Place& end) const {
  const auto bytes = end.start.compressed_offset - begin.start.compressed_offset + (begin.start.bits != 0 ? 1 : 0);
  const auto reads = reads_between(begin, end);
  return bytes * reads / (reads + kOne) + policy_.span_price_bytes;
}

void SpanPlanner::find_way(std::size_t to) {
  auto& end = places_[to];
  end.from = to - 1;
  end.cost = places_[to - 1].cost + cost_of_span(places_[to - 1], end);
  for (auto i = to - 1; i-- > 0;) {
    if (end.start.stream_offset - places_[i].start.stream_offset > policy_.max_stream_bytes) break;
    const auto cost = places_[i].cost + cost_of_span(places_[i], end);
    if (cost < end.cost) {  // of equal ways the one whose earlier spans are longer
      end.cost = cost;
      end.from = i;
    }
  }
}

void SpanPlanner::append(const SpanStart& start) {
  places_.push_back(measure(start));
  if (places_.size() == 1) {
    decided_.push_back(start);
    return;
  }
  find_way(places_.size() - 1);
  // Blocks that decode to nothing would be held back without end if only the stream's side were looked at.
  const auto& first = places_[0].start;
  if (start.stream_offset - first.stream_offset > 2 * policy_.max_stream_bytes ||
      start.compressed_offset - first.compressed_offset > 4 * policy_.max_stream_bytes)
    decide(start.stream_offset - std::min(start.stream_offset, policy_.max_stream_bytes));
}

void SpanPlanner::offer(const SpanStart& place) {
  if (!places_.empty()) {
    auto& last = places_.back();
    if (place.stream_offset == last.start.stream_offset) {
      // Nothing but empty blocks lies between: the later place has less to fetch. What is decided stays.
      if (places_.size() > 1) {
        places_.pop_back();
        append(place);
      }
      return;
    }
    if (place.stream_offset - last.start.stream_offset < policy_.min_gap_bytes) return;
  }
  append(place);
}

// Between two decided starts: a cut saves what is behind it, if what is in front of it is touched and that is not.
void SpanPlanner::decide_followers(std::size_t begin, std::size_t end) {
  if (policy_.follower_stream_bytes == 0) return;
  const auto length = std::max(policy_.follower_stream_bytes, kLeastFollowedBytes);
  auto last = places_[begin].start.stream_offset;
  for (auto i = begin + 1; i < end; ++i) {
    auto start = places_[i].start;
    if (start.window_bytes == 0 || start.stream_offset - last < length) continue;
    const auto bytes_behind = places_[end].start.compressed_offset - start.compressed_offset;
    const auto reads_before = reads_between(places_[begin], places_[i]);
    const auto reads_behind = reads_between(places_[i], places_[end]);
    const auto saves = bytes_behind * reads_before / (reads_before + kOne) * kOne / (reads_behind + kOne);
    if (saves < policy_.follower_price_bytes) continue;
    start.follows = true;
    decided_.push_back(start);
    last = start.stream_offset;
  }
}

// Takes the best way to the newest place and fixes its starts up to the given offset, at least one.
void SpanPlanner::decide(std::uint64_t until_stream_offset) {
  std::vector<std::size_t> way;
  for (auto at = places_.size() - 1; at != 0; at = places_[at].from) way.push_back(at);
  std::size_t last = 0;
  while (!way.empty()) {
    const auto next = way.back();
    if (last != 0 && places_[next].start.stream_offset > until_stream_offset) break;
    if (next == places_.size() - 1) break;  // the newest place itself stays open
    decide_followers(last, next);
    decided_.push_back(places_[next].start);
    last = next;
    way.pop_back();
  }
  if (last == 0) {  // one span reaches to the newest place: it begins the next one
    decide_followers(0, places_.size() - 1);
    last = places_.size() - 1;
    decided_.push_back(places_[last].start);
  }
  places_.erase(places_.begin(), places_.begin() + std::ptrdiff_t(last));
  places_[0].cost = 0;
  for (std::size_t i = 1; i < places_.size(); ++i) find_way(i);
}

void SpanPlanner::finish(std::uint64_t compressed_end, std::uint64_t stream_end) {
  if (places_.empty()) return;
  if (places_.back().start.stream_offset == stream_end && places_.size() > 1) places_.pop_back();  // nothing follows it
  if (stream_end == places_.back().start.stream_offset) {
    if (stream_end == 0) decided_.clear();  // an empty stream has no span
    return;
  }
  places_.push_back(measure({.compressed_offset = compressed_end, .stream_offset = stream_end}));
  find_way(places_.size() - 1);
  std::vector<std::size_t> way;
  for (auto at = places_.size() - 1; at != 0; at = places_[at].from) way.push_back(at);
  std::size_t last = 0;
  for (; !way.empty(); way.pop_back()) {
    decide_followers(last, way.back());
    last = way.back();
    if (last != places_.size() - 1) decided_.push_back(places_[last].start);
  }
  places_.clear();
}

std::vector<SpanStart> SpanPlanner::take_decided() { return std::exchange(decided_, {}); }

const SpanStart* SpanPlanner::first_undecided() const { return places_.size() > 1 ? &places_[1].start : nullptr; }

}  // namespace varve::indexer
