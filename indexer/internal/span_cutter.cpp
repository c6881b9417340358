#include "indexer/internal/span_cutter.h"

#include <algorithm>

#include "core/codec/gzip_walker.h"

namespace varve::indexer {
namespace {

// Window bytes are referred to from the next 32 KiB of stream only; in any sane stream these take less than this.
constexpr std::uint64_t kFollowingBytes = 256 * 1024;
// Skippable frames longer than this end a span, so that they need not be kept until it is known whether they lie inside
// one.
constexpr std::uint64_t kMaxGapBytes = 256 * 1024;

bool needs_window(const SpanStart& start) { return start.window_bytes != 0 && !start.follows; }

std::uint64_t first_compressed(const SpanStart& start) { return start.compressed_offset - (start.bits != 0 ? 1 : 0); }

}  // namespace

void SpanCutter::add_batch(BatchPtr batch) {
  if (gave_up_) return;
  frames_ = batch->container == codec::Container::kZstd;
  pending_.push_back(std::move(batch));
}

std::uint64_t SpanCutter::compressed_available() const {
  return pending_.empty() ? emitted_compressed_
                          : pending_.back()->compressed_offset + pending_.back()->compressed.size();
}

void SpanCutter::advance(std::uint64_t stream_offset) {
  seen_stream_ = stream_offset;
  if (frames_ && !frame_end_ && seen_stream_ - frame_begin_ > kMaxFrameStreamBytes) {
    gave_up_ = true;
    pending_.clear();
    starts_.clear();
  }
  if (!gave_up_) pump(false, 0);
}

void SpanCutter::mark(const Batch::Mark& mark) {
  if (gave_up_) return;
  if (mark.kind == Batch::Mark::Kind::kFrameEnd) {
    frame_end_ = mark.place;
    return;
  }
  offer(mark.place);
}

void SpanCutter::offer(const SpanStart& place) {
  auto start = place;
  if (frame_end_) {
    start.compressed_gap = place.compressed_offset - frame_end_->compressed_offset;
    if (start.compressed_gap > kMaxGapBytes && frame_end_->stream_offset > open_stream_)
      planner_.finish(frame_end_->compressed_offset, frame_end_->stream_offset);
    frame_end_.reset();
  }
  frame_begin_ = start.stream_offset;
  last_place_compressed_ = start.compressed_offset;
  planner_.offer(start);
  pump(false, 0);
}

// Hands on all bytes of which it is certain to which span they belong.
void SpanCutter::pump(bool at_end, std::uint64_t compressed_end) {
  for (auto& start : planner_.take_decided()) starts_.push_back(start);
  while (!starts_.empty()) {
    const auto start = starts_.front();
    if (seen_stream_ <= start.stream_offset) break;  // perhaps nothing follows it
    // The window is made sparse by looking at what follows.
    if (!at_end && needs_window(start) && seen_stream_ < start.stream_offset + codec::kDeflateWindowBytes) break;
    if (open_) end_span(start.stream_offset, start.compressed_offset - start.compressed_gap);
    begin_span(start);
    starts_.pop_front();
  }
  if (!open_) return;
  if (at_end) {
    end_span(seen_stream_, compressed_end);
    return;
  }
  if (const auto* next = starts_.empty() ? planner_.first_undecided() : &starts_.front()) {
    emit_stream(std::min(next->stream_offset, seen_stream_));
    emit_compressed(first_compressed(*next) - next->compressed_gap);
  } else {
    emit_stream(seen_stream_);
    emit_compressed(certain_compressed());
  }
  forget();
}

// While no place is pending: all before this belongs to the open span.
std::uint64_t SpanCutter::certain_compressed() const {
  if (frame_end_) return frame_end_->compressed_offset;
  if (frames_) return last_place_compressed_;
  return std::max(last_place_compressed_, compressed_available() - std::min(compressed_available(), kMaxHeldBackBytes));
}

void SpanCutter::begin_span(const SpanStart& start) {
  SpanWork work{.kind = SpanWork::Kind::kBegin, .start = start};
  emitted_stream_ = start.stream_offset;
  emitted_compressed_ = first_compressed(start);
  if (needs_window(start)) {
    work.window = copy_stream(start.stream_offset - start.window_bytes, start.stream_offset);
    work.following = copy_compressed(emitted_compressed_, emitted_compressed_ + kFollowingBytes);
  }
  open_ = true;
  open_stream_ = start.stream_offset;
  hand_on_(std::move(work));
}

void SpanCutter::end_span(std::uint64_t stream_end, std::uint64_t compressed_end) {
  emit_stream(stream_end);
  emit_compressed(compressed_end);
  open_ = false;
  hand_on_({.kind = SpanWork::Kind::kEnd, .stream_end = stream_end, .compressed_end = compressed_end});
}

void SpanCutter::emit_stream(std::uint64_t until) {
  for (const auto& batch : pending_) {
    const auto end = batch->stream_offset + batch->stream.size();
    if (batch->stream.empty() || end <= emitted_stream_) continue;
    if (batch->stream_offset >= until) break;
    const auto from = emitted_stream_ - batch->stream_offset;
    const auto length = std::min(end, until) - emitted_stream_;
    hand_on_({.kind = SpanWork::Kind::kBytes, .batch = batch, .stream = ByteView(batch->stream).subspan(from, length)});
    emitted_stream_ += length;
  }
}

void SpanCutter::emit_compressed(std::uint64_t until) {
  for (const auto& batch : pending_) {
    const auto end = batch->compressed_offset + batch->compressed.size();
    if (batch->compressed.empty() || end <= emitted_compressed_) continue;
    if (batch->compressed_offset >= until || emitted_compressed_ >= until) break;
    const auto from = emitted_compressed_ - batch->compressed_offset;
    const auto length = std::min(end, until) - emitted_compressed_;
    hand_on_({.kind = SpanWork::Kind::kBytes,
              .batch = batch,
              .compressed = ByteView(batch->compressed).subspan(from, length)});
    emitted_compressed_ += length;
  }
}

Bytes SpanCutter::copy_stream(std::uint64_t from, std::uint64_t until) const {
  Bytes bytes;
  for (const auto& batch : pending_) {
    const auto begin = std::max(from, batch->stream_offset);
    const auto end = std::min(until, batch->stream_offset + batch->stream.size());
    if (begin < end) append(bytes, ByteView(batch->stream).subspan(begin - batch->stream_offset, end - begin));
  }
  return bytes;
}

Bytes SpanCutter::copy_compressed(std::uint64_t from, std::uint64_t until) const {
  Bytes bytes;
  for (const auto& batch : pending_) {
    const auto begin = std::max(from, batch->compressed_offset);
    const auto end = std::min(until, batch->compressed_offset + batch->compressed.size());
    if (begin < end) append(bytes, ByteView(batch->compressed).subspan(begin - batch->compressed_offset, end - begin));
  }
  return bytes;
}

// A start that is still to come lies at or after what has been handed on, and needs a window's length of stream before
// it.
void SpanCutter::forget() {
  auto needed_compressed = emitted_compressed_;
  if (frame_end_ && frame_end_->stream_offset > open_stream_ && planner_.first_undecided() == nullptr) {
    // A gap so long that a span begins after it whatever comes: its bytes are nobody's.
    const auto seen = compressed_available() - std::min(compressed_available(), kMaxHeldBackBytes);
    if (seen > frame_end_->compressed_offset + kMaxGapBytes) needed_compressed = std::max(needed_compressed, seen);
  }
  std::erase_if(pending_, [&](const BatchPtr& batch) {
    const bool stream_done =
        batch->stream.empty() ||
        batch->stream_offset + batch->stream.size() + codec::kDeflateWindowBytes <= emitted_stream_;
    const bool compressed_done =
        batch->compressed.empty() || batch->compressed_offset + batch->compressed.size() + 1 <= needed_compressed;
    return stream_done && compressed_done;
  });
}

void SpanCutter::finish(std::uint64_t compressed_end) {
  if (gave_up_) return;
  if (frame_end_) compressed_end = frame_end_->compressed_offset;
  planner_.finish(compressed_end, seen_stream_);
  pump(true, compressed_end);
  pending_.clear();
}

}  // namespace varve::indexer
