#pragma once
// Between the planner of span starts and those who digest spans: keeps the bytes that are not assigned to a span yet
// and hands the others on.
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/bytes.h"
#include "indexer/internal/layer_decoder.h"
#include "indexer/span_planner.h"

namespace varve::indexer {

// What happens to spans, in order: kBegin, any number of kBytes, kEnd; then the next span.
struct SpanWork {
  enum class Kind { kBegin, kBytes, kEnd };
  Kind kind = Kind::kBytes;
  // kBegin
  SpanStart start = {};
  Bytes window = {};     // stream bytes before the start
  Bytes following = {};  // compressed bytes from the first one needed on: what decides which window bytes are needed
  // kBytes
  BatchPtr batch = nullptr;  // keeps the views alive
  ByteView stream = {};
  ByteView compressed = {};
  // kEnd
  std::uint64_t stream_end = 0;
  std::uint64_t compressed_end = 0;
};

class SpanCutter {
 public:
  using HandOn = std::function<void(SpanWork)>;
  // `planner` must outlive it. Of plain layers only the stream's side is handed on.
  SpanCutter(SpanPlanner& planner, HandOn hand_on) : planner_(planner), hand_on_(std::move(hand_on)) {}

  // Before the marks of a batch are told, the batch itself is.
  void add_batch(BatchPtr batch);
  // The stream up to this offset has been seen by all who advise the planner.
  void advance(std::uint64_t stream_offset);
  void mark(const Batch::Mark& mark);
  // `compressed_end` is where the last span ends at the latest.
  void finish(std::uint64_t compressed_end);

  // True if a zstd frame is too long for spans: nothing more is cut, and what was handed on is void.
  bool gave_up() const { return gave_up_; }

 private:
  void offer(const SpanStart& place);
  void pump(bool at_end, std::uint64_t compressed_end);
  std::uint64_t certain_compressed() const;
  void begin_span(const SpanStart& start);
  void end_span(std::uint64_t stream_end, std::uint64_t compressed_end);
  void emit_stream(std::uint64_t until);
  void emit_compressed(std::uint64_t until);
  std::uint64_t compressed_available() const;
  Bytes copy_stream(std::uint64_t from, std::uint64_t until) const;
  Bytes copy_compressed(std::uint64_t from, std::uint64_t until) const;
  void forget();

  SpanPlanner& planner_;
  HandOn hand_on_;
  std::deque<BatchPtr> pending_;
  std::deque<SpanStart> starts_;   // decided, not begun
  bool open_ = false;              // a span has begun
  std::uint64_t open_stream_ = 0;  // where
  std::uint64_t seen_stream_ = 0;
  std::uint64_t emitted_stream_ = 0;
  std::uint64_t emitted_compressed_ = 0;
  std::uint64_t last_place_compressed_ = 0;
  std::optional<SpanStart> frame_end_;  // zstd: after a frame, before the next one
  bool frames_ = false;                 // zstd
  std::uint64_t frame_begin_ = 0;       // stream offset
  bool gave_up_ = false;
};

}  // namespace varve::indexer
