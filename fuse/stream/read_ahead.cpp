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
  if (max_spans_ == 0 || stream_range.length == 0 || stream_range.end() > map_.stream_bytes) return std::nullopt;
  const auto span = map_.span_at(stream_range.end() - 1);
  const std::lock_guard lock(mutex_);
  bool known = false;
  auto& sequence = sequence_of(stream_range, known);
  sequence.last_use = ++uses_;
  if (!known) {
    sequence.next_offset = stream_range.end();
    sequence.run_bytes = stream_range.length;
    sequence.window = 0;
    sequence.ahead_to = span + 1;
  } else if (stream_range.end() > sequence.next_offset) {
    sequence.run_bytes += stream_range.end() - sequence.next_offset;
    const auto span_before = map_.span_at(sequence.next_offset - 1);
    sequence.next_offset = stream_range.end();
    if (sequence.run_bytes >= kSequentialBytes) return advance(sequence, span_before, span);
  }
  const bool has_neighbour = span + 1 < map_.spans.size() && (is_cold(span) || !is_cold(span + 1));
  if (missed && !known && has_neighbour) return Ahead{.first = span + 1, .last = span + 2};
  return std::nullopt;
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

std::optional<ReadAhead::Ahead> ReadAhead::advance(Sequence& sequence, std::size_t span_before, std::size_t span) {
  const bool entered = span != span_before;
  if (sequence.window == 0)
    sequence.window = 1;
  else if (entered)
    sequence.window = std::min(max_spans_, sequence.window * 2);
  else
    return std::nullopt;
  const auto first = std::max(sequence.ahead_to, span + 1);
  auto last = behind(span, sequence.window);
  if (!is_cold(span)) {
    for (auto ahead = first; ahead < last; ++ahead) {
      if (is_cold(ahead)) last = ahead;
    }
  }
  if (first >= last) return std::nullopt;
  sequence.ahead_to = last;
  return Ahead{.first = first, .last = last, .sequential = true};
}

// One past so many spans behind one, each with those that follow it.
std::size_t ReadAhead::behind(std::size_t span, std::size_t count) const {
  auto last = span + 1;
  if (last < map_.spans.size() && map_.spans[last].follows) --count;
  for (; last < map_.spans.size(); ++last)
    if (!map_.spans[last].follows && count-- == 0) break;
  return last;
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
