#pragma once
// The layer map: where each span of a layer lies and how to decode it. On disk: docs/formats/layer-map.md.
//
// What the bytes of a span must be, two digests say. Of a gzip layer they lie in the windows blob, each span's behind
// its window: a span's record, fetched when the span is first needed, so that a mount need not load them. The map has
// digests of the windows blob's blocks. Maps of versions before 0.3 and of other formats have the spans' digests
// themselves.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/codec/gzip_walker.h"

namespace varve::index {

inline constexpr std::uint64_t kMaxSpans = 16'000'000;            // of one layer
inline constexpr std::uint64_t kMaxSpanStreamBytes = 1ull << 30;  // highly compressible blocks make long spans
inline constexpr std::uint64_t kMaxStreamBytes = 1ull << 44;      // 16 TiB of one layer, far above any runtime
inline constexpr std::uint64_t kMaxWindowBytes = 32'768 + 1'024;  // one window in the windows blob, compressed
inline constexpr std::uint64_t kWindowBlockBytes = 64 * 1024;     // of the windows blob
inline constexpr std::uint64_t kFollowedBytes = codec::kDeflateWindowBytes;  // of stream before a span: its window
inline constexpr std::size_t kMaxFollowers = 1'024;                          // that follow each other without a window

enum class LayerFormat : std::uint8_t {
  kTar = 0,
  kGzip = 1,
  kEstargz = 2,
  kZstd = 3,
  kZstdChunked = 4,
  kZstdSingle = 5
};
// "tar" "gzip" "estargz" "zstd" "zstd-chunked" "zstd-single" (CLI.md).
std::string_view to_string(LayerFormat format);

// A piece of a layer that can be fetched, verified and decoded alone, or after the span that it follows. Spans are in
// stream order, do not overlap and leave no gap. kZstdSingle: spans cut the stream for presence and digests only;
// compressed_range is empty, since the blob must be decoded from its start.
struct Span {
  ByteRange stream_range;
  ByteRange
      compressed_range;   // all bytes needed to decode it; gzip neighbours share a byte when the second has bits != 0
  std::uint8_t bits = 0;  // gzip: so many high bits of the first byte belong to the span; 0 = all
  bool member_header = false;  // gzip: begins with a member header
  ByteRange window;            // in the windows blob; length 0 = none needed, and then where the record begins
  bool follows = false;        // gzip: its window is the end of the span before it, of kFollowedBytes at least
  bool operator==(const Span&) const = default;
};

struct SpanDigests {
  Digest compressed;  // of compressed_range; zero for kZstdSingle
  Digest stream;      // of the decoded bytes: also what proves the window right
  bool operator==(const SpanDigests&) const = default;
};
inline constexpr std::uint64_t kDigestsBytes = 2 * Digest::kBytes;

struct LayerMap {
  Digest layer_digest;  // of the blob as stored
  Digest diff_id;       // of the stream
  LayerFormat format = LayerFormat::kTar;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  Digest windows_digest;  // of the windows blob (concatenated windows, each zstd-compressed by itself); zero if none
  std::uint64_t windows_bytes = 0;
  std::vector<Span> spans;
  std::vector<SpanDigests> digests;    // of each span; empty: they are in the windows blob
  std::vector<Digest> window_digests;  // then: SHA-256 of each kWindowBlockBytes of it, the last may be shorter

  bool has_digests_in_windows() const { return !window_digests.empty(); }
  // What of the windows blob a span needs: its window and its digests. Length 0 = nothing.
  ByteRange record_range(std::size_t span) const;
  // `record`: the bytes of record_range().
  SpanDigests digests_of(std::size_t span, ByteView record) const;
  // The index of the span that holds a stream offset < stream_bytes.
  std::size_t span_at(std::uint64_t stream_offset) const;
  // The stream bytes in front of a span that follows another: its window.
  ByteRange window_in_stream(std::size_t span) const;
  // First and one past the last span that touch a stream range inside the stream; empty range = empty.
  std::pair<std::size_t, std::size_t> spans_of(ByteRange stream_range) const;

  Bytes encode() const;
  // Checks every offset, length and order; what decode() returns can be used without further checks. Throws
  // CorruptData.
  static LayerMap decode(ByteView bytes, std::string_view what);
  bool operator==(const LayerMap&) const = default;
};

// Puts the digests of a gzip layer's map into its windows blob.
void move_digests_to_windows(LayerMap& map, Bytes& windows);

// Of each layer, by an image's maps. Throws CorruptData for one that is none of the image's; `what` says that it is.
std::vector<std::uint64_t> stream_bytes_of(const std::vector<Digest>& layers,
                                           const std::vector<std::shared_ptr<const LayerMap>>& maps,
                                           std::string_view what);

}  // namespace varve::index
