#include "indexer/layer_pass.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/errors.h"
#include "core/base/threads/bounded_queue.h"
#include "core/base/threads/guarded.h"
#include "core/index/format/layer_entry_reader.h"
#include "core/oci/source_turns.h"
#include "indexer/internal/layer_decoder.h"
#include "indexer/internal/span_cutter.h"
#include "indexer/internal/span_finisher.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kQueuedBatches = 6;  // of half a MiB of stream, and the compressed bytes beside
constexpr std::size_t kQueuedSpanWork = 16;
constexpr std::size_t kQueuedWrittenPieces = 16;  // of a layer that is being written
constexpr std::size_t kWrittenPieceBytes = 512 * 1024;
constexpr std::uint64_t kSingleSpanBytes = 1024 * 1024;  // spans of a stream that must be decoded from its start

// A later stage stopped; its own error is the one that counts.
class StageStopped : public Cancelled {
 public:
  using Cancelled::Cancelled;
};

// Gives the compressed bytes of a layer, in order, to the function it is given. May throw to stop the pass.
using BlobSource = std::function<void(const std::function<void(ByteView)>&)>;

// Digests of the whole stream, and of equal pieces as long as the layer may turn out to be one frame.
class StreamDigester {
 public:
  explicit StreamDigester(bool single) : single_(single) {}

  void take(const Batch& batch) {
    diff_id_.update(batch.stream);
    if (batch.container != codec::Container::kZstd) return;
    if (!single_ && !dropped_) {
      for (const auto& mark : batch.marks) {
        // Known as one of several frames before it got too long: the pieces will not be asked for.
        if (mark.kind == Batch::Mark::Kind::kPlace && mark.place.stream_offset != 0 &&
            mark.place.stream_offset <= kMaxFrameStreamBytes)
          dropped_ = true;
      }
    }
    if (!dropped_) digest_pieces(batch.stream);
  }

  void finish() {
    diff_id = diff_id_.finish();
    if (in_piece_ != 0) pieces.push_back(piece_.finish());
    if (dropped_) pieces.clear();
  }

  Digest diff_id;
  std::vector<Digest> pieces;  // empty if dropped
  bool dropped() const { return dropped_; }

 private:
  void digest_pieces(ByteView bytes) {
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), kSingleSpanBytes - in_piece_));
      piece_.update(part);
      in_piece_ += part.size();
      bytes = bytes.subspan(part.size());
      if (in_piece_ == kSingleSpanBytes) {
        pieces.push_back(piece_.finish());
        in_piece_ = 0;
      }
    }
  }

  bool single_;
  bool dropped_ = false;
  Sha256 diff_id_;
  Sha256 piece_;
  std::uint64_t in_piece_ = 0;
};

// The stages of one pass and the queues between them: the caller's thread reads and decodes, one digests the stream,
// one reads the tar and cuts spans, one finishes spans.
class Pass {
 public:
  Pass(std::string what, SpanPlanner& planner, ReadModel* model, bool single)
      : what_(std::move(what)),
        entries_(what_, model),
        stream_(single),
        cutter_(planner, [this](SpanWork work) { hand_on(span_work_, std::move(work)); }),
        single_(single) {}

  DecodedSizes run(const BlobSource& blob, std::uint64_t max_stream_bytes) {
    DecodedSizes decoded;
    {
      const std::jthread stream_thread([this] { guard([this] { digest_stream(); }); });
      const std::jthread tar_thread([this] { guard([this] { read_tar(); }); });
      const std::jthread span_thread([this] { guard([this] { finish_spans(); }); });
      guard([&] { decoded = read_blob(blob, max_stream_bytes); });
    }
    if (auto failure = failure_.with([](auto& first) { return first; })) std::rethrow_exception(failure);
    return decoded;
  }

  StreamDigester& stream() { return stream_; }
  index::LayerEntryReader& entries() { return entries_; }
  SpanFinisher& spans() { return finisher_; }
  bool cut_to_the_end() const { return !single_ && !cutter_.gave_up(); }

 private:
  template <typename T>
  static void hand_on(BoundedQueue<T>& queue, T value) {
    if (!queue.push(std::move(value))) throw StageStopped("stopped");
  }

  // The first error of any stage ends all of them.
  void guard(const std::function<void()>& stage) noexcept {
    try {
      stage();
    } catch (const StageStopped&) {
      // Its reason is kept already.
    } catch (...) {
      failure_.with([](auto& first) {
        if (!first) first = std::current_exception();
      });
      for_stream_.abort();
      for_tar_.abort();
      span_work_.abort();
    }
  }

  DecodedSizes read_blob(const BlobSource& blob, std::uint64_t max_stream_bytes) {
    LayerReader reader(what_, max_stream_bytes, [this](const BatchPtr& batch) {
      hand_on(for_stream_, batch);
      hand_on(for_tar_, batch);
    });
    blob([&](ByteView bytes) { reader.feed(bytes); });
    const auto decoded = reader.finish();
    for_stream_.close();
    for_tar_.close();
    return decoded;
  }

  void digest_stream() {
    while (const auto batch = for_stream_.pop()) stream_.take(**batch);
    stream_.finish();
  }

  void read_tar() {
    std::uint64_t compressed_end = 0;
    while (const auto batch = for_tar_.pop()) {
      read_batch(*batch);
      const bool plain = (*batch)->container == codec::Container::kTar;
      compressed_end = (*batch)->compressed_offset + (plain ? (*batch)->stream.size() : (*batch)->compressed.size());
    }
    entries_.finish();
    if (!single_) cutter_.finish(compressed_end);
    span_work_.close();
  }

  // The planner hears of a place only after all entries before it.
  void read_batch(const BatchPtr& batch) {
    if (!single_) cutter_.add_batch(batch);
    std::uint64_t at = batch->stream_offset;
    const auto read_until = [&](std::uint64_t until) {
      entries_.feed(ByteView(batch->stream).subspan(at - batch->stream_offset, until - at));
      at = until;
      if (!single_) cutter_.advance(at);
    };
    for (const auto& mark : batch->marks) {
      if (mark.place.stream_offset > at) read_until(mark.place.stream_offset);
      if (!single_) cutter_.mark(mark);
    }
    read_until(batch->stream_offset + batch->stream.size());
  }

  void finish_spans() {
    while (const auto work = span_work_.pop()) finisher_.take(*work);
  }

  std::string what_;
  Guarded<std::exception_ptr> failure_;
  BoundedQueue<BatchPtr> for_stream_{kQueuedBatches};
  BoundedQueue<BatchPtr> for_tar_{kQueuedBatches};
  BoundedQueue<SpanWork> span_work_{kQueuedSpanWork};
  index::LayerEntryReader entries_;
  StreamDigester stream_;
  SpanCutter cutter_;
  SpanFinisher finisher_;
  bool single_;
};

void add_single_frame_spans(index::LayerMap& map, const std::vector<Digest>& pieces) {
  for (const auto& piece : pieces) {
    const auto offset = map.spans.size() * kSingleSpanBytes;
    map.spans.emplace_back().stream_range = {.offset = offset,
                                             .length = std::min(kSingleSpanBytes, map.stream_bytes - offset)};
    map.digests.push_back({.compressed = {}, .stream = piece});
  }
}

// Of a plain layer both sides are the same; the pass digests only one.
void mirror_plain_spans(index::LayerMap& map) {
  for (auto& span : map.spans) span.compressed_range = span.stream_range;
  for (auto& both : map.digests) both.compressed = both.stream;
}

// Absent if the layer must be read again as a single frame. Without the layer's own digest.
std::optional<IndexedLayer> try_layer(const std::string& what, const BlobSource& blob, bool single,
                                      const LayerPassOptions& options) {
  SpanPlanner planner(options.policy);
  ReadModel model(planner, options.expectations);
  Pass pass(what, planner, &model, single);
  const auto decoded = pass.run(blob, options.max_stream_bytes);
  const bool is_single = single || decoded.format == index::LayerFormat::kZstdSingle || !pass.cut_to_the_end();
  if (is_single && pass.stream().dropped()) return std::nullopt;

  IndexedLayer result;
  auto& map = result.map;
  map.diff_id = pass.stream().diff_id;
  map.format = is_single ? index::LayerFormat::kZstdSingle : decoded.format;
  map.compressed_bytes = decoded.compressed_bytes;
  map.stream_bytes = decoded.stream_bytes;
  if (is_single) {
    add_single_frame_spans(map, pass.stream().pieces);
  } else {
    map.spans = pass.spans().take_spans();
    map.digests = pass.spans().take_digests();
    result.windows = pass.spans().take_windows();
  }
  if (map.format == index::LayerFormat::kTar) mirror_plain_spans(map);
  if (map.format == index::LayerFormat::kGzip || map.format == index::LayerFormat::kEstargz)
    index::move_digests_to_windows(map, result.windows);
  result.entries.entries = pass.entries().take_entries();
  result.entries.has_elf_facts = true;
  return result;
}

void set_digest(IndexedLayer& indexed, const Digest& layer, const Digest& diff_id) {
  indexed.map.layer_digest = layer;
  indexed.entries.layer_digest = layer;
  if (indexed.map.diff_id != diff_id)
    fail<CorruptData>("layer {}: its content is {}, but the image's config names {} (diff_id)", layer.to_string(),
                      indexed.map.diff_id.to_string(), diff_id.to_string());
}

}  // namespace

namespace {

// `verified`: all of the blob came, and its digest is right.
IndexedLayer read_layer(oci::Repository& repository, const oci::Descriptor& layer, const Digest& diff_id,
                        const LayerPassOptions& options, const Work& work, bool& verified) {
  const auto what = fmt::format("layer {}", layer.digest.to_string());
  const auto blob = [&](const std::function<void(ByteView)>& take) {
    std::uint64_t received = 0;
    repository.read_blob(layer, {.offset = 0, .length = layer.size}, [&](ByteView bytes) {
      work.add(bytes.size());
      take(bytes);
      received += bytes.size();
    });
    if (received != layer.size) fail<CorruptData>("{}: {} bytes, expected {}", what, received, layer.size);
    verified = true;
  };
  for (const bool single : {false, true}) {
    auto indexed = try_layer(what, blob, single, options);
    if (!indexed) {
      work.progress.expect(layer.size);
      continue;
    }
    set_digest(*indexed, layer.digest, diff_id);
    return std::move(*indexed);
  }
  fail<Error>("{}: cannot be read as one frame", what);
}

}  // namespace

IndexedLayer index_layer(oci::Repository& repository, const oci::Descriptor& layer, const Digest& diff_id,
                         const LayerPassOptions& options, const Work& work) {
  for (oci::SourceTurns sources(repository, layer);;) {
    bool verified = false;
    try {
      return read_layer(repository, layer, diff_id, options, work, verified);
    } catch (const CorruptData& error) {
      if (verified || !sources.next(error)) throw;
      work.progress.expect(layer.size);
    }
  }
}

class WrittenLayerPass::Impl {
 public:
  Impl(std::string what, const LayerPassOptions& options)
      : thread_([this, name = std::move(what), options] { run(name, options); }) {}
  ~Impl() {
    stop_.cancel();
    pieces_.abort();
  }

  void feed(ByteView compressed) {
    while (!compressed.empty()) {
      const auto part = compressed.first(std::min(compressed.size(), kWrittenPieceBytes - piece_.size()));
      append(piece_, part);
      compressed = compressed.subspan(part.size());
      if (piece_.size() == kWrittenPieceBytes) hand_over();
    }
  }

  std::optional<IndexedLayer> finish(const Digest& layer, const Digest& diff_id) {
    hand_over();
    pieces_.close();
    join();
    if (indexed_) set_digest(*indexed_, layer, diff_id);
    return std::move(indexed_);
  }

 private:
  void hand_over() {
    if (!pieces_.push(std::exchange(piece_, {}))) join();
    piece_.reserve(kWrittenPieceBytes);
  }

  void join() {
    if (thread_.joinable()) thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  void run(const std::string& what, const LayerPassOptions& options) noexcept {
    try {
      const auto blob = [this](const std::function<void(ByteView)>& take) {
        while (const auto piece = pieces_.pop()) take(*piece);
        stop_.throw_if_cancelled();
      };
      indexed_ = try_layer(what, blob, false, options);
    } catch (...) {
      failure_ = std::current_exception();
      pieces_.abort();
    }
  }

  BoundedQueue<Bytes> pieces_{kQueuedWrittenPieces};
  Bytes piece_;
  CancelFlag stop_;
  std::optional<IndexedLayer> indexed_;  // both are read after the thread has ended
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it ends first
};

WrittenLayerPass::WrittenLayerPass(std::string what, const LayerPassOptions& options)
    : impl_(std::make_unique<Impl>(std::move(what), options)) {}
WrittenLayerPass::~WrittenLayerPass() = default;
void WrittenLayerPass::feed(ByteView compressed) { impl_->feed(compressed); }
std::optional<IndexedLayer> WrittenLayerPass::finish(const Digest& layer, const Digest& diff_id) {
  return impl_->finish(layer, diff_id);
}

}  // namespace varve::indexer
