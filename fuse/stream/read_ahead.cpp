#include "fuse/stream/read_ahead.h"

#include <algorithm>

#include "core/index/format/cold_ranges.h"

namespace varve::fuse {
namespace {

// The kernel's readahead asks from several threads, so the pieces of one sequence come a little out of order.
constexpr std::uint64_t kSlackBytes = 512 * 1024;
// So much must be read in one run before it counts as a sequence: more than a page fault with the kernel's own
// read-ahead around it, and more than most small files, which are not followed by what their reader wants next.
constexpr std::uint64_t kSequentialBytes = 512 * 1024;

}  // namespace

std::optional<ReadAhead::Ahead> ReadAhead::on_read(ByteRange stream_range, bool missed) {
  if (max_bytes_ == 0 || stream_range.length == 0 || stream_range.end() > map_.stream_bytes) return std::nullopt;
  const auto span = map_.span_at(stream_range.end() - 1);
  const std::lock_guard lock(mutex_);
  bool known = false;
  auto& sequence = sequence_of(stream_range, known);
  sequence.last_use = ++uses_;
  if (!known) {
    sequence.next_offset = stream_range.end();
    sequence.run_bytes = stream_range.length;
    sequence.ahead_to = span + 1;
  } else if (stream_range.end() > sequence.next_offset) {
    sequence.run_bytes += stream_range.end() - sequence.next_offset;
    sequence.next_offset = stream_range.end();
    if (sequence.run_bytes >= kSequentialBytes) return advance(sequence, span);
  }
  return missed ? around(span, !known) : std::nullopt;
}

std::optional<ReadAhead::Ahead> ReadAhead::around(std::size_t span, bool alone) const {
  const auto is_wanted = [&](std::size_t one) { return one < map_.spans.size() && (is_cold(span) || !is_cold(one)); };
  auto last = span + 1;
  if (!is_wanted(last)) return std::nullopt;
  if (!map_.spans[last].follows) return alone ? std::optional(Ahead{.first = last, .last = last + 1}) : std::nullopt;
  while (is_wanted(last) && map_.spans[last].follows) ++last;
  return Ahead{.first = span + 1, .last = last, .why = Why::kFollows};
}

// The sequence that this read goes on with, or the least recently used one to begin anew.
ReadAhead::Sequence& ReadAhead::sequence_of(ByteRange stream_range, bool& known) {
  auto* oldest = &sequences_.front();
  for (auto& sequence : sequences_) {
    const bool goes_on = sequence.last_use > 0 && stream_range.offset <= sequence.next_offset + kSlackBytes &&
                         stream_range.end() + kSlackBytes >= sequence.next_offset;
    if (goes_on) {
      known = true;
      return sequence;
    }
    if (sequence.last_use < oldest->last_use) oldest = &sequence;
  }
  return *oldest;
}

std::optional<ReadAhead::Ahead> ReadAhead::advance(Sequence& sequence, std::size_t span) {
  const auto window = std::min(max_bytes_, sequence.run_bytes / 2);
  const auto first = std::max(sequence.ahead_to, span + 1);
  const auto asked_to = map_.spans[first - 1].stream_range.end();
  if (first == map_.spans.size() || asked_to - sequence.next_offset > window / 2) return std::nullopt;
  auto last = std::max(first, map_.span_at(std::min(map_.stream_bytes, sequence.next_offset + window) - 1)) + 1;
  if (!is_cold(span)) {
    for (auto ahead = first; ahead < last; ++ahead) {
      if (is_cold(ahead)) last = ahead;
    }
  }
  if (first >= last) return std::nullopt;
  sequence.ahead_to = last;
  return Ahead{.first = first, .last = last, .why = Why::kReadsOn};
}

void ReadAhead::note_cold(const Digest& image, const std::vector<ByteRange>& stream_ranges) {
  std::vector<bool> spans;
  if (!stream_ranges.empty()) {
    spans.resize(map_.spans.size());
    index::for_each_span_within(map_, stream_ranges, [&](std::size_t span) { spans[span] = true; });
  }
  const std::lock_guard lock(mutex_);
  cold_of_[image] = std::move(spans);
  cold_.assign(map_.spans.size(), true);
  for (const auto& [digest, cold] : cold_of_) {
    if (cold.empty()) {
      cold_.clear();
      return;
    }
    for (std::size_t span = 0; span < cold.size(); ++span) cold_[span] = cold_[span] && cold[span];
  }
}

}  // namespace varve::fuse
