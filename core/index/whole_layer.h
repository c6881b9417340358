#pragma once
// Decodes a layer from its start, for layers that cannot be entered in the middle (one zstd frame): each span is given
// when it is complete and verified, so that readers of the first megabytes need not wait for the last.
#include <functional>

#include "core/base/bytes.h"
#include "core/codec/zstd_walker.h"
#include "core/index/format/layer_map.h"

namespace varve::index {

// Not shared between threads. The map must outlive it.
class WholeLayerDecoder final : private codec::ZstdListener {
 public:
  // `stream` holds exactly the span's bytes, already verified, and is valid during the call only. What it throws
  // reaches feed()'s caller.
  using OnSpan = std::function<void(std::size_t span, ByteView stream)>;
  WholeLayerDecoder(const LayerMap& map, OnSpan on_span);

  // The blob's next bytes, from its start. Throws CorruptData naming the layer if a span does not match its digest.
  void feed(ByteView compressed) { walker_.feed(compressed); }
  // Throws CorruptData if spans are missing.
  void finish();

 private:
  void on_stream_bytes(ByteView bytes) override;
  void on_frame(std::uint64_t, std::uint64_t) override {}

  const LayerMap& map_;
  OnSpan on_span_;
  codec::ZstdWalker walker_;
  std::size_t next_span_ = 0;
  Bytes pending_;  // of the span that is not complete yet
};

}  // namespace varve::index
