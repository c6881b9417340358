#include "indexer/internal/layer_decoder.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/codec/sniff.h"
#include "core/codec/zstd_walker.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kPieceBytes = 128 * 1024;
constexpr std::size_t kBatchStreamBytes = 512 * 1024;
constexpr std::size_t kBatchCompressedBytes = 512 * 1024;
constexpr std::uint64_t kPlainPlaceBytes = 32 * 1024;  // of plain layers, which can be entered anywhere
constexpr std::uint64_t kMaxSilentCompressedBytes = 1024 * 1024;
constexpr std::size_t kTailBytes = codec::kZstdChunkedFooterBytes;
static_assert(kTailBytes >= codec::kEstargzFooterBytes);

// Collects bytes and marks into batches.
class BatchWriter {
 public:
  BatchWriter(std::string what, codec::Container container, std::uint64_t max_stream_bytes, LayerReader::HandOn hand_on)
      : what_(std::move(what)),
        container_(container),
        max_stream_bytes_(max_stream_bytes),
        hand_on_(std::move(hand_on)) {
    start_batch();
  }

  const std::string& what() const { return what_; }
  std::uint64_t compressed_bytes() const { return compressed_bytes_; }
  std::uint64_t stream_bytes() const { return stream_bytes_; }

  // Returns what holds the bytes, for the decoder to read from: the batch may be handed on while it does.
  std::shared_ptr<const Batch> add_compressed(ByteView bytes) {
    append(batch_->compressed, bytes);
    compressed_bytes_ += bytes.size();
    return batch_;
  }
  void count_compressed(std::uint64_t bytes) { compressed_bytes_ += bytes; }

  void add_stream(ByteView bytes) {
    if (bytes.size() > max_stream_bytes_ - stream_bytes_)
      fail<Unsupported>("{}: inflates to more than {} bytes", what_, max_stream_bytes_);
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kBatchStreamBytes - batch_->stream.size()));
      append(batch_->stream, part);
      stream_bytes_ += part.size();
      bytes = bytes.subspan(part.size());
      if (batch_->stream.size() == kBatchStreamBytes) hand_on();
    }
  }

  void mark(Batch::Mark mark) {
    // Without stream bytes in between only the last of many places counts.
    if (mark.kind == Batch::Mark::Kind::kPlace && !batch_->marks.empty()) {
      auto& last = batch_->marks.back();
      if (last.kind == Batch::Mark::Kind::kPlace && last.place.stream_offset == mark.place.stream_offset &&
          mark.place.stream_offset != 0) {
        last = mark;
        return;
      }
    }
    batch_->marks.push_back(mark);
  }

  void hand_on_if_large() {
    if (batch_->compressed.size() >= kBatchCompressedBytes || batch_->stream.size() >= kBatchStreamBytes / 2) hand_on();
  }

  void hand_on() {
    if (batch_->stream.empty() && batch_->compressed.empty() && batch_->marks.empty()) return;
    hand_on_(std::move(batch_));
    start_batch();
  }

 private:
  void start_batch() {
    batch_ = std::make_shared<Batch>();
    batch_->container = container_;
    batch_->compressed_offset = compressed_bytes_;
    batch_->stream_offset = stream_bytes_;
    batch_->stream.reserve(kBatchStreamBytes);
  }

  std::string what_;
  codec::Container container_;
  std::uint64_t max_stream_bytes_;
  LayerReader::HandOn hand_on_;
  std::shared_ptr<Batch> batch_;
  std::uint64_t compressed_bytes_ = 0;
  std::uint64_t stream_bytes_ = 0;
};

// The last bytes of what was fed: footers tell the dialect.
class Tail {
 public:
  void add(ByteView bytes) {
    const auto kept = bytes.last(std::min(bytes.size(), kTailBytes));
    append(bytes_, kept);
    if (bytes_.size() > kTailBytes) bytes_.erase(bytes_.begin(), bytes_.end() - kTailBytes);
  }
  ByteView last(std::size_t count) const { return ByteView(bytes_).last(std::min(count, bytes_.size())); }

 private:
  Bytes bytes_;
};

// What gzip and zstd layers share: a walker that is fed and tells its listener what it found.
template <typename Walker, typename Listener>
class WalkedLayer : public LayerDecoder, protected Listener {
 public:
  explicit WalkedLayer(BatchWriter writer) : writer_(std::move(writer)), walker_(writer_.what(), *this) {}

  void feed(ByteView compressed) override {
    tail_.add(compressed);
    const auto batch = writer_.add_compressed(compressed);
    walker_.feed(ByteView(batch->compressed).last(compressed.size()));
    writer_.hand_on_if_large();
  }

  DecodedSizes finish() override {
    walker_.finish();
    writer_.hand_on();
    return {.format = format(), .compressed_bytes = writer_.compressed_bytes(), .stream_bytes = writer_.stream_bytes()};
  }

 protected:
  void on_stream_bytes(ByteView bytes) override { writer_.add_stream(bytes); }

  BatchWriter writer_;
  Walker walker_;
  Tail tail_;
};

class GzipLayer final : public WalkedLayer<codec::GzipWalker, codec::GzipListener> {
 public:
  using WalkedLayer::WalkedLayer;

  index::LayerFormat format() const override {
    return codec::has_estargz_footer(tail_.last(codec::kEstargzFooterBytes)) ? index::LayerFormat::kEstargz
                                                                             : index::LayerFormat::kGzip;
  }

 private:
  bool wants_boundary(std::uint64_t stream_offset) override {
    return stream_offset == last_place_ || stream_offset - last_place_ >= kPlaceGapBytes ||
           writer_.compressed_bytes() - last_compressed_ >= kMaxSilentCompressedBytes;
  }

  void on_boundary(const codec::GzipBoundary& boundary, ByteView window) override {
    last_place_ = boundary.stream_offset;
    last_compressed_ = boundary.compressed_offset;
    writer_.mark({.kind = Batch::Mark::Kind::kPlace,
                  .place = {.compressed_offset = boundary.compressed_offset,
                            .bits = boundary.bits,
                            .stream_offset = boundary.stream_offset,
                            .member_start = boundary.member_start,
                            .window_bytes = boundary.member_start ? 0 : std::uint32_t(window.size())}});
  }

  std::uint64_t last_place_ = 0;
  std::uint64_t last_compressed_ = 0;
};

class ZstdLayer final : public WalkedLayer<codec::ZstdWalker, codec::ZstdListener> {
 public:
  using WalkedLayer::WalkedLayer;

  index::LayerFormat format() const override {
    if (walker_.frames() <= 1) return index::LayerFormat::kZstdSingle;
    return codec::has_zstd_chunked_footer(tail_.last(codec::kZstdChunkedFooterBytes)) ? index::LayerFormat::kZstdChunked
                                                                                      : index::LayerFormat::kZstd;
  }

 private:
  void on_frame(std::uint64_t compressed_offset, std::uint64_t stream_offset) override {
    writer_.mark({.kind = Batch::Mark::Kind::kPlace,
                  .place = {.compressed_offset = compressed_offset, .stream_offset = stream_offset}});
  }
  void on_frame_end(std::uint64_t compressed_offset) override {
    writer_.mark({.kind = Batch::Mark::Kind::kFrameEnd,
                  .place = {.compressed_offset = compressed_offset, .stream_offset = writer_.stream_bytes()}});
  }
};

class PlainLayer final : public LayerDecoder {
 public:
  explicit PlainLayer(BatchWriter writer) : writer_(std::move(writer)) {}
  index::LayerFormat format() const override { return index::LayerFormat::kTar; }

  void feed(ByteView bytes) override {
    while (!bytes.empty()) {
      const auto at = writer_.stream_bytes();
      if (at % kPlainPlaceBytes == 0)
        writer_.mark({.kind = Batch::Mark::Kind::kPlace, .place = {.compressed_offset = at, .stream_offset = at}});
      const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), kPlainPlaceBytes - at % kPlainPlaceBytes));
      writer_.count_compressed(part.size());
      writer_.add_stream(part);
      bytes = bytes.subspan(part.size());
    }
  }

  DecodedSizes finish() override {
    writer_.hand_on();
    return {.format = format(), .compressed_bytes = writer_.compressed_bytes(), .stream_bytes = writer_.stream_bytes()};
  }

 private:
  BatchWriter writer_;
};

}  // namespace

LayerReader::LayerReader(std::string what, std::uint64_t max_stream_bytes, HandOn hand_on)
    : what_(std::move(what)), max_stream_bytes_(max_stream_bytes), hand_on_(std::move(hand_on)) {
  piece_.reserve(kPieceBytes);
}

LayerReader::~LayerReader() = default;

void LayerReader::feed(ByteView compressed) {
  while (!compressed.empty()) {
    const auto part = compressed.first(std::min(compressed.size(), kPieceBytes - piece_.size()));
    append(piece_, part);
    compressed = compressed.subspan(part.size());
    if (piece_.size() == kPieceBytes) feed_piece();
  }
}

// The media type is not asked: labels lie, bytes do not.
void LayerReader::feed_piece() {
  if (!decoder_) {
    const auto container = codec::sniff(ByteView(piece_).first(std::min(piece_.size(), codec::kSniffBytes)));
    BatchWriter writer(what_, container, max_stream_bytes_, hand_on_);
    switch (container) {
      case codec::Container::kGzip:
        decoder_ = std::make_unique<GzipLayer>(std::move(writer));
        break;
      case codec::Container::kZstd:
        decoder_ = std::make_unique<ZstdLayer>(std::move(writer));
        break;
      case codec::Container::kTar:
        decoder_ = std::make_unique<PlainLayer>(std::move(writer));
        break;
      case codec::Container::kUnknown:
        fail<CorruptData>("{} at 0: neither gzip nor zstd nor tar", what_);
    }
  }
  decoder_->feed(piece_);
  piece_.clear();
}

DecodedSizes LayerReader::finish() {
  if (!piece_.empty() || !decoder_) feed_piece();
  return decoder_->finish();
}

}  // namespace varve::indexer
