#include "core/index/whole_layer.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/index/span_reader.h"

namespace varve::index {

WholeLayerDecoder::WholeLayerDecoder(const LayerMap& map, OnSpan on_span)
    : map_(map), on_span_(std::move(on_span)), walker_("layer " + map.layer_digest.to_string(), *this) {}

void WholeLayerDecoder::finish() {
  walker_.finish();
  if (next_span_ != map_.spans.size())
    fail<CorruptData>("layer {}: the stream ends after {} of {} spans", map_.layer_digest.to_string(), next_span_,
                      map_.spans.size());
}

void WholeLayerDecoder::on_stream_bytes(ByteView bytes) {
  while (!bytes.empty()) {
    if (next_span_ == map_.spans.size())
      fail<CorruptData>("layer {}: the stream goes on after {} bytes", map_.layer_digest.to_string(),
                        map_.stream_bytes);
    const auto& span = map_.spans[next_span_];
    const auto take = std::min<std::uint64_t>(bytes.size(), span.stream_range.length - pending_.size());
    append(pending_, bytes.first(take));
    bytes = bytes.subspan(take);
    if (pending_.size() < span.stream_range.length) return;
    if (digest_of(pending_) != map_.digests[next_span_].stream)
      fail<CorruptData>("layer {}: the digest of stream bytes {}+{} does not match the index",
                        map_.layer_digest.to_string(), span.stream_range.offset, span.stream_range.length);
    on_span_(next_span_++, pending_);
    pending_.clear();
  }
}

}  // namespace varve::index
