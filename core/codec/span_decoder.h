#pragma once
// From the compressed bytes of one span to its stream bytes. This is where a span becomes bytes.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/bytes.h"

namespace varve::codec {

struct GzipSpanInput {
  ByteView compressed = {};  // from the first byte needed (the shared byte if bits != 0); may run past the span's end
  std::uint8_t bits = 0;
  ByteView window = {};        // up to 32768 bytes of stream before the span; empty at a member start
  bool member_header = false;  // the span begins with a gzip member header (member start), not inside a member
};

// Holds the decoders' state so that it is allocated once; one per thread.
class SpanDecoder {
 public:
  SpanDecoder();
  ~SpanDecoder();
  SpanDecoder(SpanDecoder&&) noexcept;
  SpanDecoder& operator=(SpanDecoder&&) noexcept;

  // Fill `stream` exactly, crossing members or frames where the span does. Throw CorruptData naming `what` if the input
  // ends early or is not valid; never read or write outside the buffers, whatever the input.
  void decode_gzip(const GzipSpanInput& input, std::span<std::byte> stream, std::string_view what);
  void decode_zstd(ByteView compressed, std::span<std::byte> stream, std::string_view what);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// zstd and windows: the one general-purpose compressor of our own blobs. Deterministic for one library version.
Bytes compress_zstd(ByteView bytes, int level);
// Throws CorruptData; Unsupported if the content would exceed `limit_bytes`.
Bytes decompress_zstd(ByteView compressed, std::uint64_t limit_bytes, std::string_view what);

}  // namespace varve::codec
