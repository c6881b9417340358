#pragma once
// Where a span becomes bytes: the one place that turns fetched compressed bytes into verified stream bytes. Used by the
// mount, by `cat` and by whoever reads an image through its index.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/base/errors.h"
#include "core/codec/span_decoder.h"
#include "core/index/format/layer_map.h"

namespace varve::index {

// What a span needs, as the map says.
struct SpanInput {
  ByteView compressed = {};  // compressed_range of the layer blob
  ByteView record = {};      // record_range() of the windows blob; whoever read it has compared its blocks' digests
  ByteView before = {};      // window_in_stream(), if it follows another span
};

// Fills `stream` (exactly the length of the span's stream_range). Order: digest of the compressed bytes, so that no
// decoder sees bytes that nobody vouched for; window; decode; digest of the decoded bytes, which also proves the
// window. Throws CorruptData naming the layer, the span's compressed offset and the step that failed. Not for
// kZstdSingle, whose blob is decoded from its start (verify_span_stream checks it). One decoder per thread. `check`:
// kCompressed leaves the last step out, for who checks what the bytes are parts of (whole contents) himself.
enum class SpanCheck : std::uint8_t { kBoth, kCompressed };
void decode_span(const LayerMap& map, std::size_t span, const SpanInput& input, std::span<std::byte> stream,
                 codec::SpanDecoder& decoder, SpanCheck check = SpanCheck::kBoth);

// Tells which side of a failed decode_span() was wrong, so that only that is fetched again.
class CorruptSpan : public CorruptData {
 public:
  enum class Part { kCompressed, kWindowOrStream };
  CorruptSpan(Part part, const std::string& message) : CorruptData(message), part_(part) {}
  Part part() const { return part_; }

 private:
  Part part_;
};

// Compares what was read of the windows blob, whole blocks from the beginning of one on, with the map's digests of
// them. Of a map that has the spans' digests itself nothing need be compared. Throws CorruptData.
void check_window_blocks(const LayerMap& map, std::uint64_t offset, ByteView blocks);

}  // namespace varve::index
