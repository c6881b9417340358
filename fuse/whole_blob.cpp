#include "fuse/whole_blob.h"

#include "core/base/errors.h"
#include "core/codec/zstd_walker.h"
#include "core/index/span_reader.h"

namespace varve::fuse {
namespace {

// Thrown through the transfer to end it: the store has all.
struct NothingMissing {};

// Cuts the stream into the spans of the map.
class SpanCutter final : public codec::ZstdListener {
 public:
  SpanCutter(FetchLayer& layer, const std::function<void(std::size_t, SpanStore::Hold)>& on_span)
      : layer_(layer), on_span_(on_span) {}

  void on_frame(std::uint64_t, std::uint64_t) override {}

  void on_stream_bytes(ByteView bytes) override {
    while (!bytes.empty()) {
      if (span_ >= layer_.map->spans.size())
        fail<CorruptData>("layer {}: more than {} bytes of stream", layer_.map->layer_digest.to_string(), layer_.map->stream_bytes);
      const auto length = layer_.map->spans[span_].stream_range.length;
      const auto step = std::min<std::uint64_t>(bytes.size(), length - seen_);
      if (!layer_.store.readable(span_) || !part_.empty()) append(part_, bytes.first(step));
      seen_ += step;
      bytes = bytes.subspan(step);
      if (seen_ == length) finish_span();
    }
  }

  void finish() const {
    if (span_ < layer_.map->spans.size())
      fail<CorruptData>("layer {}: its stream ends in span {} of {}", layer_.map->layer_digest.to_string(), span_,
                        layer_.map->spans.size());
  }

 private:
  void finish_span() {
    const auto& span = layer_.map->spans[span_];
    SpanStore::Hold hold;
    // A span that was dropped while it passed has no whole copy here; the next stream brings it.
    if (!layer_.store.readable(span_) && part_.size() == span.stream_range.length) {
      if (!index::verify_span_stream(span, part_))
        fail<CorruptData>("layer {} at stream offset {}: the digest of the decoded bytes does not match the index",
                          layer_.map->layer_digest.to_string(), span.stream_range.offset);
      layer_.counters.decoded_bytes.fetch_add(part_.size(), std::memory_order_relaxed);
      hold = layer_.store.put(span_, part_);
    }
    part_.clear();
    seen_ = 0;
    on_span_(span_++, std::move(hold));
    if (layer_.store.complete()) throw NothingMissing();
  }

  FetchLayer& layer_;
  const std::function<void(std::size_t, SpanStore::Hold)>& on_span_;
  std::size_t span_ = 0;
  std::uint64_t seen_ = 0;  // of this span
  Bytes part_;
};

}  // namespace

void stream_whole_blob(FetchLayer& layer, oci::Repository& repository, const std::atomic<bool>& stopping,
                       const std::function<void(std::size_t, SpanStore::Hold)>& on_span) {
  SpanCutter cutter(layer, on_span);
  codec::ZstdWalker walker(layer.map->layer_digest.to_string(), cutter);
  layer.counters.requests.fetch_add(1, std::memory_order_relaxed);
  try {
    repository.read_blob(layer.blob, {.offset = 0, .length = layer.map->compressed_bytes}, [&](ByteView bytes) {
      if (stopping) throw Cancelled("fetching is stopped");
      layer.counters.fetched_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
      walker.feed(bytes);
    });
    walker.finish();
    cutter.finish();
  } catch (const NothingMissing&) {
  }
}

}  // namespace varve::fuse
