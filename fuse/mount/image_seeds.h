#pragma once
// Bytes of an image's layers that are here in layers of an earlier version of it: read there instead of being fetched.
// Nothing is copied or recorded, as it is the word of this image's index that they are the same
// (core/index/format/seeds.h): no other image that has the same layer believes it.
#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/threads/guarded.h"
#include "core/index/format/seeds.h"
#include "fuse/mount/stream_file.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// Less than this between files that sources have is taken for headers: it may be a small file, which is fetched when it
// is read.
inline constexpr std::uint64_t kMostHeaderBytes = 4096;

// Of one image. Safe to use from any thread.
class ImageSeeds {
 public:
  // `layers`: the image's, each once; must outlive it. `seeds` was checked against them. `sources`: in the order of the
  // seeds' sources, null for what is not here. For the first call; later ones change nothing.
  // kCopied: ranges that a source has whole are left to the layer, which copies them (fuse/stream/local_copies.h).
  enum class Whole : std::uint8_t { kRead, kCopied };
  void use(index::Seeds seeds, const std::vector<std::shared_ptr<LayerStream>>& layers,
           const std::vector<std::shared_ptr<LayerStream>>& sources, Whole whole = Whole::kRead);
  bool is_enabled() const { return used_.load(std::memory_order_acquire) != nullptr; }

  // Appends the piece, or what it falls into: what its layer lacks and a source has is to be read there.
  void find_pieces(const StreamPiece& piece, std::vector<StreamPiece>& pieces) const;
  // All of the range is in the layer or in sources.
  bool is_here(LayerStream& layer, ByteRange stream_range) const;

  std::vector<std::shared_ptr<LayerStream>> sources() const;  // that are here
  // Where damaged bytes of a source belong: the layers and their ranges.
  std::vector<std::pair<LayerStream*, ByteRange>> places_of(const LayerStream& source,
                                                            const std::vector<ByteRange>& stream_ranges) const;
  // Stream side: what the sources have now, and what was read from them.
  std::uint64_t source_bytes() const;
  std::uint64_t read_bytes() const;

 private:
  struct Layer {
    std::vector<index::SeedRange> ranges;
    std::vector<index::SeedLiteral> literals;
  };
  struct Used {
    std::unordered_map<LayerStream*, Layer> layers;
    std::vector<std::unique_ptr<SeedStream>> sources;  // null for what is not here
    Whole whole = Whole::kRead;
  };
  class Cut;

  template <typename Bytes>
  std::uint64_t sum_of(const Bytes& bytes) const;

  Guarded<std::unique_ptr<const Used>> kept_;
  std::atomic<const Used*> used_ = nullptr;
};

// A device of the tree whose bytes may come from an earlier version.
using SeededFile = DividedFile<const ImageSeeds>;

}  // namespace varve::fuse
