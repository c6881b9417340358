#include "fuse/mount/stream_file.h"

#include <algorithm>
#include <atomic>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/threads/guarded.h"

namespace varve::fuse {
namespace {

std::uint64_t round_up_to_blocks(std::uint64_t bytes) {
  return (bytes + index::kTreeBlockBytes - 1) / index::kTreeBlockBytes * index::kTreeBlockBytes;
}

// False if it is not there any more, or cannot be read.
bool read_elsewhere(const StreamPiece& piece, std::span<std::byte> into) {
  if (piece.literal != nullptr) {
    std::copy_n(piece.literal, piece.length, into.begin());
    return true;
  }
  if (piece.seed == nullptr) return false;
  try {
    if (!piece.seed->stream->read_if_readable(piece.seed_offset, into)) return false;
  } catch (const std::exception& error) {
    log::warn("layer {}: {}; read from the image's own", piece.seed->stream->map().layer_digest.to_string(),
              error.what());
    return false;
  }
  return true;
}

// Waits for all pieces of one read; the last that arrives hands over the bytes.
class PendingPieces : public std::enable_shared_from_this<PendingPieces> {
 public:
  PendingPieces(std::vector<StreamPiece> pieces, std::size_t size, ReadDone done)
      : pieces_(std::move(pieces)),
        buffer_(std::make_unique_for_overwrite<std::byte[]>(size)),
        bytes_(buffer_.get(), size),
        done_(std::move(done)),
        missing_(pieces_.size()) {}

  void start() {
    if (!covers_everything()) std::ranges::fill(bytes_, std::byte{0});
    if (pieces_.empty()) return done_(nullptr, bytes_);
    for (const auto& piece : pieces_) {
      if (read_elsewhere(piece, part(piece))) {
        if (piece.seed != nullptr) piece.seed->read_bytes.fetch_add(piece.length, std::memory_order_relaxed);
        arrived(nullptr);
      } else if (piece.pack != nullptr) {
        piece.pack->stream->read(piece.pack_offset, part(piece),
                                 [self = shared_from_this(), &piece](std::exception_ptr error) {
                                   if (!error) return self->arrived(nullptr);
                                   piece.pack->note_failure(error);
                                   self->read_from_layer(piece);
                                 });
      } else {
        read_from_layer(piece);
      }
    }
  }

 private:
  std::span<std::byte> part(const StreamPiece& piece) const { return bytes_.subspan(piece.into, piece.length); }

  void read_from_layer(const StreamPiece& piece) {
    piece.stream->read(piece.stream_offset, part(piece),
                       [self = shared_from_this()](std::exception_ptr error) { self->arrived(error); });
  }

  void arrived(std::exception_ptr error) {
    if (error)
      error_.with([&](auto& first) {
        if (!first) first = error;
      });
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const auto failed = error_.with([](auto& first) { return first; });
    done_(failed, failed ? ByteView() : ByteView(bytes_));
  }

  bool covers_everything() const {
    std::uint64_t covered = 0;
    for (const auto& piece : pieces_) covered += piece.length;  // pieces do not overlap
    return covered == bytes_.size();
  }

  const std::vector<StreamPiece> pieces_;
  const std::unique_ptr<std::byte[]> buffer_;
  const std::span<std::byte> bytes_;
  const ReadDone done_;
  std::atomic<std::size_t> missing_;
  Guarded<std::exception_ptr> error_;
};

}  // namespace

LayerFile::LayerFile(std::shared_ptr<LayerStream> stream)
    : stream_(std::move(stream)), size_(round_up_to_blocks(stream_->map().stream_bytes)) {}

void LayerFile::find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const {
  if (range.length > 0) pieces.push_back({stream_.get(), range.offset, into, range.length});
}

RangesFile::RangesFile(index::RangesDevice device, std::vector<std::shared_ptr<LayerStream>> layers)
    : device_(std::move(device)), layers_(std::move(layers)), size_(round_up_to_blocks(device_.bytes)) {
  for (const auto& range : device_.ranges) {
    if (range.layer >= layers_.size())
      fail<CorruptData>("ranges device at {}: names layer {} of {}", range.device_offset, range.layer, layers_.size());
    const auto stream_bytes = layers_[range.layer]->map().stream_bytes;
    if (!ByteRange{range.stream_offset, range.length}.fits_in(stream_bytes)) {
      fail<CorruptData>("ranges device at {}: {}+{} is outside layer {} of {} bytes", range.device_offset,
                        range.stream_offset, range.length, layers_[range.layer]->map().layer_digest.to_string(),
                        stream_bytes);
    }
  }
}

void RangesFile::find_pieces(ByteRange wanted, std::uint64_t into, std::vector<StreamPiece>& pieces) const {
  auto range = std::partition_point(device_.ranges.begin(), device_.ranges.end(),
                                    [&](const auto& r) { return r.device_offset + r.length <= wanted.offset; });
  for (; range != device_.ranges.end() && range->device_offset < wanted.end(); ++range) {
    const auto from = std::max(range->device_offset, wanted.offset);
    const auto to = std::min(range->device_offset + range->length, wanted.end());
    if (from >= to) continue;
    pieces.push_back({layers_[range->layer].get(), range->stream_offset + (from - range->device_offset),
                      into + (from - wanted.offset), to - from});
  }
}

bool read_if_here(const StreamPiece& piece, std::span<std::byte> into) {
  return read_elsewhere(piece, into) || piece.stream->read_if_readable(piece.stream_offset, into);
}

void read_pieces(std::vector<StreamPiece> pieces, std::size_t size, ReadDone done) {
  std::make_shared<PendingPieces>(std::move(pieces), size, std::move(done))->start();
}

}  // namespace varve::fuse
