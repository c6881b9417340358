#pragma once
// Turns the bytes of spans into a layer map: digests of both sides, and windows reduced to what is needed of them.
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/format/layer_map.h"
#include "indexer/internal/span_cutter.h"

namespace varve::indexer {

class SpanFinisher {
 public:
  void take(const SpanWork& work);

  // Valid after the last kEnd.
  std::vector<index::Span> take_spans() { return std::move(spans_); }
  std::vector<index::SpanDigests> take_digests() { return std::move(digests_); }
  Bytes take_windows() { return std::move(windows_); }

 private:
  void begin(const SpanWork& work);
  void end(const SpanWork& work);

  std::vector<index::Span> spans_;
  std::vector<index::SpanDigests> digests_;
  Bytes windows_;
  index::Span span_;
  Sha256 compressed_digest_;
  Sha256 stream_digest_;
};

// The window of a span as it lies in the windows blob; empty if none of its bytes is needed.
Bytes pack_window(ByteView window, ByteView following, std::uint8_t bits);

}  // namespace varve::indexer
