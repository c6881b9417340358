#include "core/index/span_reader.h"

#include <algorithm>

namespace varve::index {
namespace {

template <typename... Args>
[[noreturn]] void fail_span(CorruptSpan::Part part, const LayerMap& map, const Span& span,
                            fmt::format_string<Args...> reason, Args&&... args) {
  throw CorruptSpan(part, fmt::format("layer {} at {}: {}", map.layer_digest.to_string(), span.compressed_range.offset,
                                      fmt::format(reason, std::forward<Args>(args)...)));
}

void decode_gzip(const Span& span, const SpanInput& input, std::span<std::byte> stream, codec::SpanDecoder& decoder,
                 std::string_view what) {
  auto window = span.follows ? input.before : input.record.first(span.window.length);
  Bytes unpacked;
  if (!span.follows && !window.empty()) {
    unpacked = codec::decompress_zstd(window, kFollowedBytes, what);
    window = unpacked;
  }
  decoder.decode_gzip(
      {.compressed = input.compressed, .bits = span.bits, .window = window, .member_header = span.member_header},
      stream, what);
}

void decode(const LayerMap& map, const Span& span, const SpanInput& input, std::span<std::byte> stream,
            codec::SpanDecoder& decoder) {
  const auto what = fmt::format("layer {} at {}", map.layer_digest.to_string(), span.compressed_range.offset);
  switch (map.format) {
    case LayerFormat::kTar:
      if (input.compressed.size() != stream.size())
        fail_span(CorruptSpan::Part::kCompressed, map, span, "a stored span changes its length");
      std::ranges::copy(input.compressed, stream.begin());
      return;
    case LayerFormat::kGzip:
    case LayerFormat::kEstargz:
      decode_gzip(span, input, stream, decoder, what);
      return;
    case LayerFormat::kZstd:
    case LayerFormat::kZstdChunked:
      decoder.decode_zstd(input.compressed, stream, what);
      return;
    case LayerFormat::kZstdSingle:
      fail_span(CorruptSpan::Part::kCompressed, map, span, "a single zstd frame cannot be entered in the middle");
  }
}

}  // namespace

void decode_span(const LayerMap& map, std::size_t number, const SpanInput& input, std::span<std::byte> stream,
                 codec::SpanDecoder& decoder, SpanCheck check) {
  const auto& span = map.spans[number];
  if (input.compressed.size() != span.compressed_range.length)
    fail_span(CorruptSpan::Part::kCompressed, map, span, "{} bytes, expected {}", input.compressed.size(),
              span.compressed_range.length);
  if (stream.size() != span.stream_range.length)
    fail<Error>("decode_span: a buffer of {} bytes for a span of {}", stream.size(), span.stream_range.length);
  if (input.record.size() != map.record_range(number).length ||
      input.before.size() != (span.follows ? kFollowedBytes : 0))
    fail_span(CorruptSpan::Part::kWindowOrStream, map, span, "{} and {} bytes of window, not what the map says",
              input.record.size(), input.before.size());
  const auto digests = map.digests_of(number, input.record);
  if (digest_of(input.compressed) != digests.compressed)
    fail_span(CorruptSpan::Part::kCompressed, map, span,
              "the digest of its {} compressed bytes does not match the index", input.compressed.size());
  try {
    decode(map, span, input, stream, decoder);
  } catch (const CorruptSpan&) {
    throw;
  } catch (const CorruptData& error) {
    // The compressed bytes are the right ones, so it is the window (or the index itself) that does not fit.
    throw CorruptSpan(CorruptSpan::Part::kWindowOrStream, error.what());
  }
  if (check == SpanCheck::kBoth && digest_of(stream) != digests.stream)
    fail_span(CorruptSpan::Part::kWindowOrStream, map, span,
              "the digest of its {} decoded bytes does not match the index", stream.size());
}

void check_window_blocks(const LayerMap& map, std::uint64_t offset, ByteView blocks) {
  if (!map.has_digests_in_windows()) return;
  for (std::uint64_t at = 0; at < blocks.size(); at += kWindowBlockBytes) {
    const auto block = blocks.subspan(at, std::min<std::uint64_t>(kWindowBlockBytes, blocks.size() - at));
    if (digest_of(block) != map.window_digests.at((offset + at) / kWindowBlockBytes))
      fail<CorruptData>("windows of layer {} at {}: the digest of {} bytes does not match the index",
                        map.layer_digest.to_string(), offset + at, block.size());
  }
}

}  // namespace varve::index
