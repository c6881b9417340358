#include "core/index/span_reader.h"

#include <algorithm>

namespace varve::index {
namespace {

constexpr std::uint64_t kMaxDeflateWindowBytes = 32'768;  // RFC 1951, section 2

template <typename... Args>
[[noreturn]] void fail_span(CorruptSpan::Part part, const LayerMap& map, const Span& span,
                            fmt::format_string<Args...> reason, Args&&... args) {
  throw CorruptSpan(part, fmt::format("layer {} at {}: {}", map.layer_digest.to_string(), span.compressed_range.offset,
                                      fmt::format(reason, std::forward<Args>(args)...)));
}

void decode_gzip(const LayerMap& map, const Span& span, ByteView compressed, ByteView compressed_window,
                 std::span<std::byte> stream, codec::SpanDecoder& decoder, std::string_view what) {
  if (compressed_window.size() != span.window.length)
    fail_span(CorruptSpan::Part::kWindowOrStream, map, span, "{} bytes of window, expected {}",
              compressed_window.size(), span.window.length);
  Bytes window;
  if (!compressed_window.empty()) window = codec::decompress_zstd(compressed_window, kMaxDeflateWindowBytes, what);
  decoder.decode_gzip(
      {.compressed = compressed, .bits = span.bits, .window = window, .member_header = span.member_header}, stream,
      what);
}

void decode(const LayerMap& map, const Span& span, ByteView compressed, ByteView compressed_window,
            std::span<std::byte> stream, codec::SpanDecoder& decoder) {
  const auto what = fmt::format("layer {} at {}", map.layer_digest.to_string(), span.compressed_range.offset);
  switch (map.format) {
    case LayerFormat::kTar:
      if (compressed.size() != stream.size())
        fail_span(CorruptSpan::Part::kCompressed, map, span, "a stored span changes its length");
      std::ranges::copy(compressed, stream.begin());
      return;
    case LayerFormat::kGzip:
    case LayerFormat::kEstargz:
      decode_gzip(map, span, compressed, compressed_window, stream, decoder, what);
      return;
    case LayerFormat::kZstd:
    case LayerFormat::kZstdChunked:
      decoder.decode_zstd(compressed, stream, what);
      return;
    case LayerFormat::kZstdSingle:
      fail_span(CorruptSpan::Part::kCompressed, map, span, "a single zstd frame cannot be entered in the middle");
  }
}

}  // namespace

void decode_span(const LayerMap& map, const Span& span, ByteView compressed, ByteView compressed_window,
                 std::span<std::byte> stream, codec::SpanDecoder& decoder, SpanCheck check) {
  if (compressed.size() != span.compressed_range.length)
    fail_span(CorruptSpan::Part::kCompressed, map, span, "{} bytes, expected {}", compressed.size(),
              span.compressed_range.length);
  if (stream.size() != span.stream_range.length)
    fail<Error>("decode_span: a buffer of {} bytes for a span of {}", stream.size(), span.stream_range.length);
  if (digest_of(compressed) != span.compressed_digest)
    fail_span(CorruptSpan::Part::kCompressed, map, span,
              "the digest of its {} compressed bytes does not match the index", compressed.size());
  try {
    decode(map, span, compressed, compressed_window, stream, decoder);
  } catch (const CorruptSpan&) {
    throw;
  } catch (const CorruptData& error) {
    // The compressed bytes are the right ones, so it is the window (or the index itself) that does not fit.
    throw CorruptSpan(CorruptSpan::Part::kWindowOrStream, error.what());
  }
  if (check == SpanCheck::kBoth && !verify_span_stream(span, stream))
    fail_span(CorruptSpan::Part::kWindowOrStream, map, span,
              "the digest of its {} decoded bytes does not match the index", stream.size());
}

bool verify_span_stream(const Span& span, ByteView stream) {
  return stream.size() == span.stream_range.length && digest_of(stream) == span.stream_digest;
}

}  // namespace varve::index
