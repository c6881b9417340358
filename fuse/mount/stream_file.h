#pragma once
// Files made of layer streams: what the mounts read from, below names and attributes.
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/index/format/erofs.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// A start-up pack that bytes of layers can be read from.
struct PackSource {
  std::string name;                     // of its group
  std::shared_ptr<LayerStream> stream;  // of its frames
  std::atomic<bool> failed = false;     // it is not asked any more
  // Says so, once.
  void note_failure(const std::exception_ptr& error);
};

// A layer of an earlier version of the image, that bytes of its layers can be read from.
struct SeedStream {
  std::shared_ptr<LayerStream> stream;
  std::atomic<std::uint64_t> read_bytes = 0;  // by read_pieces()
};

// `length` bytes at `stream_offset` of a layer stream, wanted at `into` of a buffer.
struct StreamPiece {
  LayerStream* stream = nullptr;
  std::uint64_t stream_offset = 0;
  std::uint64_t into = 0;
  std::uint64_t length = 0;
  PackSource* pack = nullptr;  // not null: the same bytes are at `pack_offset` of its stream, which is asked first
  std::uint64_t pack_offset = 0;
  SeedStream* seed = nullptr;  // not null: the same bytes are at `seed_offset` of its stream, and read if still there
  std::uint64_t seed_offset = 0;
  const std::byte* literal = nullptr;  // not null: these are the bytes
  bool learnt = false;                 // some of it is in a pack that was triggered, wherever it is read from
  bool between_files = false;          // most likely headers of a tar, which no file has: not worth fetching ahead
  // It need not be fetched, though its layer may lack it.
  bool is_elsewhere() const { return literal != nullptr || seed != nullptr; }
  // [from, end) of its layer stream, inside it, with where that is read from.
  StreamPiece part(std::uint64_t from, std::uint64_t end) const {
    auto part = *this;
    const auto skipped = from - stream_offset;
    part.stream_offset = from;
    part.into += skipped;
    part.length = end - from;
    if (pack != nullptr) part.pack_offset += skipped;
    if (seed != nullptr) part.seed_offset += skipped;
    if (literal != nullptr) part.literal += skipped;
    return part;
  }
  bool operator==(const StreamPiece&) const = default;
};

// A device of the tree as a file. Safe to use from any thread.
class StreamFile {
 public:
  virtual ~StreamFile() = default;
  // Bytes; a multiple of the tree's block size, since devices are measured in blocks.
  virtual std::uint64_t size() const = 0;
  // Appends where the bytes of `range` (inside the file) lie; `into` is where the range begins in the reader's buffer.
  // What no piece covers reads as zeros. The pieces are valid while this file lives.
  virtual void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const = 0;
};

// A whole layer stream.
class LayerFile final : public StreamFile {
 public:
  explicit LayerFile(std::shared_ptr<LayerStream> stream);
  std::uint64_t size() const override { return size_; }
  void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const override;
  LayerStream& stream() const { return *stream_; }

 private:
  std::shared_ptr<LayerStream> stream_;
  std::uint64_t size_;
};

// The ranges device (core/index/format/erofs.h): content that is not one aligned run of a stream.
class RangesFile final : public StreamFile {
 public:
  // Throws CorruptData if a range names a layer or bytes that are not there.
  RangesFile(index::RangesDevice device, std::vector<std::shared_ptr<LayerStream>> layers);
  std::uint64_t size() const override { return size_; }
  void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const override;

 private:
  index::RangesDevice device_;
  std::vector<std::shared_ptr<LayerStream>> layers_;
  std::uint64_t size_;
};

// A file whose bytes somebody may have elsewhere: once it is enabled, `Finder` is asked by find_pieces(piece, pieces)
// what each piece falls into.
template <typename Finder>
class DividedFile final : public StreamFile {
 public:
  DividedFile(std::shared_ptr<StreamFile> file, std::shared_ptr<Finder> finder)
      : file_(std::move(file)), finder_(std::move(finder)) {}
  std::uint64_t size() const override { return file_->size(); }
  void find_pieces(ByteRange range, std::uint64_t into, std::vector<StreamPiece>& pieces) const override {
    if (!finder_->is_enabled()) return file_->find_pieces(range, into, pieces);
    std::vector<StreamPiece> whole;
    file_->find_pieces(range, into, whole);
    for (const auto& piece : whole) finder_->find_pieces(piece, pieces);
  }

 private:
  std::shared_ptr<StreamFile> file_;
  std::shared_ptr<Finder> finder_;
};

// Reads a piece where nothing need be fetched for it, and no pack asked; else false, and `into` may hold anything. What
// a reader gets is read by read_pieces() also then: only that spares a fetch, and counts.
bool read_if_here(const StreamPiece& piece, std::span<std::byte> into);

// Called once; `bytes` is valid during the call and empty if `error` is set.
using ReadDone = std::function<void(std::exception_ptr error, ByteView bytes)>;

// Reads `size` bytes put together from `pieces`. If all is in the store, `done` is called before this returns; else
// later, from a thread of the stream, so that no thread waits per reader. The streams must outlive the call of `done`.
void read_pieces(std::vector<StreamPiece> pieces, std::size_t size, ReadDone done);

}  // namespace varve::fuse
