#include "indexer/internal/span_finisher.h"

#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/span_decoder.h"

namespace varve::indexer {
namespace {

constexpr int kWindowLevel = 9;

Bytes needed_window_bytes(ByteView window, ByteView following, std::uint8_t bits) {
  try {
    return codec::make_window_sparse(following, bits, window);
  } catch (const CorruptData&) {
    // Blocks so wasteful that what follows does not show which bytes are needed: all are kept.
    return to_bytes(window);
  }
}

}  // namespace

Bytes pack_window(ByteView window, ByteView following, std::uint8_t bits) {
  return codec::compress_zstd(needed_window_bytes(window, following, bits), kWindowLevel);
}

void SpanFinisher::take(const SpanWork& work) {
  switch (work.kind) {
    case SpanWork::Kind::kBegin:
      begin(work);
      break;
    case SpanWork::Kind::kBytes:
      stream_digest_.update(work.stream);
      compressed_digest_.update(work.compressed);
      break;
    case SpanWork::Kind::kEnd:
      end(work);
      break;
  }
}

void SpanFinisher::begin(const SpanWork& work) {
  const auto& start = work.start;
  span_ = {};
  span_.stream_range.offset = start.stream_offset;
  span_.compressed_range.offset = start.compressed_offset - (start.bits != 0 ? 1 : 0);
  span_.bits = start.bits;
  span_.member_header = start.member_start;
  span_.follows = start.follows;
  if (work.window.empty()) return;
  const auto packed = pack_window(work.window, work.following, start.bits);
  span_.window = {.offset = windows_.size(), .length = packed.size()};
  append(windows_, packed);
}

void SpanFinisher::end(const SpanWork& work) {
  span_.stream_range.length = work.stream_end - span_.stream_range.offset;
  span_.compressed_range.length = work.compressed_end - span_.compressed_range.offset;
  digests_.push_back({.compressed = compressed_digest_.finish(), .stream = stream_digest_.finish()});
  spans_.push_back(span_);
}

}  // namespace varve::indexer
