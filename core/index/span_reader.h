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

// What has to be fetched is known from the map: `compressed` are the bytes of span.compressed_range of the layer blob,
// `compressed_window` those of span.window of the windows blob (empty if its length is 0).
// Fills `stream` (exactly span.stream_range.length bytes). Order: digest of the compressed bytes, so that no decoder
// sees bytes that nobody vouched for; window; decode; digest of the decoded bytes, which also proves the window. Throws
// CorruptData naming the layer, the span's compressed offset and the step that failed. Not for kZstdSingle, whose blob
// is decoded from its start (verify_span_stream checks it). One decoder per thread. `check`: kCompressed leaves the
// last step out, for who checks what the bytes are parts of (whole contents) himself.
enum class SpanCheck : std::uint8_t { kBoth, kCompressed };
void decode_span(const LayerMap& map, const Span& span, ByteView compressed, ByteView compressed_window,
                 std::span<std::byte> stream, codec::SpanDecoder& decoder, SpanCheck check = SpanCheck::kBoth);

// Tells which side of a failed decode_span() was wrong, so that only that is fetched again.
class CorruptSpan : public CorruptData {
 public:
  enum class Part { kCompressed, kWindowOrStream };
  CorruptSpan(Part part, const std::string& message) : CorruptData(message), part_(part) {}
  Part part() const { return part_; }

 private:
  Part part_;
};

// The digest check alone: for decoded bytes that come from the store or from a whole-blob decode. False if they are not
// the span's.
bool verify_span_stream(const Span& span, ByteView stream);

}  // namespace varve::index
