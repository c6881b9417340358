#include "indexer/layer_writer.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/errors.h"
#include "core/codec/crc64.h"
#include "core/codec/tar_parser.h"
#include "indexer/content_chunker.h"
#include "indexer/internal/chunked_table.h"
#include "indexer/internal/frame_pool.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kBatchContentBytes = 512 * 1024;  // enough work to be worth handing to another thread
constexpr std::size_t kMaxBatchItems = 512;
constexpr int kCutsVersion = 1;                         // counted up when the same tar is cut or told of in another way
constexpr std::size_t kMemberBytes = 1024 * 1024;       // of a gzip member
constexpr std::size_t kMaxRawFrameBytes = 1024 * 1024;  // headers of many files without content are cut here
constexpr std::size_t kMaxFeedBytes = 1024 * 1024;      // looked at in one go
constexpr std::size_t kMaxHeaderBytes = 16 * 1024 * 1024;  // of one entry, for the tar-split; larger ones have no table

// What the frames of a batch are, in order; a PlacedEntry has none.
struct RawFrame {};
struct ChunkFrame {
  PlacedChunk chunk;
};
struct PlacedEntry {
  codec::TarEntry entry;
  std::uint32_t mode = 0;
  Digest content_digest;
};
using Item = std::variant<RawFrame, ChunkFrame, PlacedEntry>;

}  // namespace

std::string writer_name(const LayerWriterOptions& options) {
  const bool gzip = options.format == WrittenFormat::kGzip;
  return fmt::format("{} {}, {}, cuts {}", gzip ? "gzip" : "zstd:chunked", options.level,
                     codec::encoder_library(gzip ? codec::FrameFormat::kGzip : codec::FrameFormat::kZstd),
                     kCutsVersion);
}

class LayerWriter::Impl final : private codec::TarListener {
 public:
  Impl(std::string what, const LayerWriterOptions& options, Sink sink, OnFile on_file)
      : format_(options.format),
        sink_(std::move(sink)),
        on_file_(std::move(on_file)),
        parser_(std::move(what), *this),
        pool_(make_frame_pool(is_chunked() ? codec::FrameFormat::kZstd : codec::FrameFormat::kGzip, options.level,
                              options.jobs)) {}

  void feed(ByteView stream) {
    while (!stream.empty()) {
      const auto piece = stream.first(std::min(stream.size(), kMaxFeedBytes));
      feed_piece(piece);
      stream = stream.subspan(piece.size());
    }
  }

  WrittenLayer finish() {
    parser_.finish();
    settle_entries();
    if (open_) fail<CorruptData>("the tar ends inside a file");  // the parser says so first
    flush_raw();
    flush_batch();
    pool_.drain([this](FrameBatch&& batch) { write(std::move(batch)); });
    WrittenLayer layer;
    if (is_chunked()) {
      auto tail = table_.finish(header_, compressed_bytes_);
      write(tail.bytes);
      layer.annotations = std::move(tail.annotations);
      layer.without_table = table_.reason();
    }
    layer.media_type =
        is_chunked() ? "application/vnd.oci.image.layer.v1.tar+zstd" : "application/vnd.oci.image.layer.v1.tar+gzip";
    layer.digest = blob_digest_.finish();
    layer.compressed_bytes = compressed_bytes_;
    layer.diff_id = diff_id_.finish();
    layer.stream_bytes = position_;
    return layer;
  }

 private:
  struct Awaited {
    codec::TarEntry entry;
    std::uint64_t begin = 0;  // stream side
    std::uint64_t length = 0;
  };

  bool is_chunked() const { return format_ == WrittenFormat::kZstdChunked; }

  bool digests_contents() const { return is_chunked() || on_file_; }

  // The parser has seen a whole piece before its bytes are sorted into headers and contents: an entry is always known
  // before its content.
  void on_entry(codec::TarEntry entry) override {
    Awaited awaited;
    awaited.begin = entry.data_stream_offset;
    awaited.length = entry.data_stream_length;
    awaited.entry = std::move(entry);
    awaited_.push_back(std::move(awaited));
  }
  void on_content(ByteView) override {}
  void on_entry_end() override {}

  void feed_piece(ByteView piece) {
    diff_id_.update(piece);
    parser_.feed(piece);
    while (!piece.empty()) {
      settle_entries();
      auto part = piece;
      if (open_) {
        part = part.first(std::size_t(std::min<std::uint64_t>(part.size(), open_->begin + open_->length - position_)));
        add_content(part);
      } else {
        if (!awaited_.empty())
          part = part.first(std::size_t(std::min<std::uint64_t>(part.size(), awaited_.front().begin - position_)));
        add_raw(part);
      }
      position_ += part.size();
      piece = piece.subspan(part.size());
    }
    settle_entries();
  }

  // Ends the open file and begins entries that the stream has come to.
  void settle_entries() {
    if (open_ && position_ == open_->begin + open_->length) end_file();
    while (!open_ && !awaited_.empty() && awaited_.front().begin <= position_) {
      // A sparse map in front of the content is told late: such layers have no table, only the cuts matter.
      if (awaited_.front().begin < position_) table_.give_up("a sparse file");
      open_ = std::move(awaited_.front());
      awaited_.pop_front();
      begin_file();
      if (position_ >= open_->begin + open_->length) end_file();
    }
  }

  void begin_file() {
    if (is_chunked()) {
      table_.begin_entry(open_->entry, header_);
      mode_ = table_.reason().empty() ? header_mode(header_) : 0;
    }
    header_.clear();
    header_too_long_ = false;
    if (open_->length != 0) flush_raw();
    file_offset_ = 0;
    crc_ = 0;
  }

  void end_file() {
    if (open_->length != 0) {
      while (!content_.empty()) cut_chunk();
      if (is_chunked()) table_.end_content(crc_);
    }
    const auto digest = open_->length != 0 && digests_contents() ? content_digest_.finish() : Digest();
    if (on_file_ && open_->length != 0) on_file_(open_->entry.name, digest);
    if (is_chunked() && table_.reason().empty())
      add_item(PlacedEntry{.entry = std::move(open_->entry), .mode = mode_, .content_digest = digest});
    open_.reset();
  }

  void add_raw(ByteView bytes) {
    if (is_chunked() && !header_too_long_) {
      append(header_, bytes);
      if (header_.size() > kMaxHeaderBytes) {
        // Zeros behind the end of the archive, most likely.
        table_.give_up("more than 16 MiB between two files");
        header_too_long_ = true;
        header_.clear();
      }
    }
    append(raw_, bytes);
    if (raw_.size() >= kMaxRawFrameBytes) flush_raw();
  }

  void flush_raw() {
    if (raw_.empty()) return;
    add_frame(raw_, RawFrame{});
    raw_.clear();
  }

  void add_content(ByteView bytes) {
    if (digests_contents()) content_digest_.update(bytes);
    if (is_chunked()) {
      crc_ = codec::crc64_iso(crc_, bytes);
    }
    append(content_, bytes);
    while (content_.size() - cut_ >= kMaxChunkBytes) cut_chunk();
  }

  // Takes the first chunk of what is held of the file.
  void cut_chunk() {
    const auto held = ByteView(content_).subspan(cut_);
    const auto cut = is_chunked() ? next_cut(held) : ChunkCut{.bytes = std::min(held.size(), kMemberBytes)};
    const auto bytes = held.first(cut.bytes);
    ChunkFrame frame;
    frame.chunk.file_offset = file_offset_;
    frame.chunk.bytes = bytes.size();
    frame.chunk.zeros = cut.zeros;
    if (is_chunked() && bytes.size() != open_->length) frame.chunk.digest = digest_of(bytes);
    add_frame(bytes, frame);
    file_offset_ += cut.bytes;
    cut_ += cut.bytes;
    if (cut_ == content_.size() || cut_ >= 2 * kMaxChunkBytes) {
      content_.erase(content_.begin(), content_.begin() + std::ptrdiff_t(cut_));
      cut_ = 0;
    }
  }

  void add_frame(ByteView bytes, Item item) {
    append(batch_.content, bytes);
    if (!is_chunked()) {
      if (batch_.content.size() >= kMemberBytes) flush_batch();
      return;
    }
    batch_.content_ends.push_back(batch_.content.size());
    add_item(std::move(item));
    if (batch_.content.size() >= kBatchContentBytes) flush_batch();
  }

  void add_item(Item item) {
    items_.push_back(std::move(item));
    if (items_.size() >= kMaxBatchItems) flush_batch();
  }

  void flush_batch() {
    if (batch_.content.empty() && items_.empty()) return;
    if (!is_chunked()) batch_.content_ends = {batch_.content.size()};
    pending_items_.push_back(std::exchange(items_, {}));
    pool_.add(std::exchange(batch_, {}), [this](FrameBatch&& batch) { write(std::move(batch)); });
  }

  void write(FrameBatch&& batch) {
    const auto items = std::move(pending_items_.front());
    pending_items_.pop_front();
    std::size_t frame = 0;
    const auto begin = compressed_bytes_;
    for (const auto& item : items) {
      const auto at = begin + (frame == 0 ? 0 : batch.frame_ends[frame - 1]);
      if (const auto* placed = std::get_if<PlacedEntry>(&item)) {
        table_.place_entry(placed->entry, placed->mode, placed->content_digest, chunks_, at);
        chunks_.clear();
        continue;
      }
      if (const auto* chunk = std::get_if<ChunkFrame>(&item)) {
        chunks_.push_back(chunk->chunk);
        chunks_.back().compressed_offset = at;
      }
      ++frame;
    }
    write(batch.frames);
  }

  void write(ByteView blob) {
    if (blob.empty()) return;
    blob_digest_.update(blob);
    compressed_bytes_ += blob.size();
    sink_(blob);
  }

  WrittenFormat format_;
  Sink sink_;
  OnFile on_file_;
  codec::TarParser parser_;
  ChunkedTable table_;

  // The stream side.
  std::uint64_t position_ = 0;
  Sha256 diff_id_;
  std::deque<Awaited> awaited_;
  std::optional<Awaited> open_;  // the file whose content goes by
  Bytes header_;                 // raw bytes since the last entry began, for the tar-split
  bool header_too_long_ = false;
  Bytes raw_;            // raw bytes that are in no frame yet
  Bytes content_;        // of the open file, from its last cut on
  std::size_t cut_ = 0;  // of `content_` that is cut already
  std::uint64_t file_offset_ = 0;
  std::uint64_t crc_ = 0;
  std::uint32_t mode_ = 0;
  Sha256 content_digest_;

  // The compressed side.
  FrameBatch batch_;
  std::vector<Item> items_;
  std::deque<std::vector<Item>> pending_items_;  // of the batches in the pool
  std::vector<PlacedChunk> chunks_;              // of the file whose frames are being written
  Sha256 blob_digest_;
  std::uint64_t compressed_bytes_ = 0;
  FramePool pool_;  // last: its threads end first
};

LayerWriter::LayerWriter(std::string what, const LayerWriterOptions& options, Sink sink, OnFile on_file)
    : impl_(std::make_unique<Impl>(std::move(what), options, std::move(sink), std::move(on_file))) {}
LayerWriter::~LayerWriter() = default;
void LayerWriter::feed(ByteView stream) { impl_->feed(stream); }
WrittenLayer LayerWriter::finish() { return impl_->finish(); }

}  // namespace varve::indexer
