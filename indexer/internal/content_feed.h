#pragma once
// The contents of many files out of old layers, in the order they are asked for, decoded ahead by several threads: each
// span once or nearly so.
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/cancel.h"
#include "core/base/guarded.h"
#include "core/base/ordered_pool.h"
#include "core/base/unique_fd.h"
#include "core/index/local_index.h"
#include "core/index/merge/tree.h"
#include "core/oci/image.h"

namespace varve::indexer {

// Where contents are read from. All must outlive who reads.
struct ContentOrigin {
  const oci::Image& image;
  const index::LoadedIndex& index;
  const index::LocalIndex& local;     // that the index was loaded from
  std::filesystem::path scratch_dir;  // for the streams of layers that are one zstd frame: they are decoded once, whole
};

// Streams of layers that cannot be entered, decoded into files without a name. Shared by the layers that are written.
// Not shared between threads while it is filled.
class SpooledLayers {
 public:
  explicit SpooledLayers(const ContentOrigin& origin) : origin_(origin) {}
  // Decodes the layer if it is one zstd frame and not here yet.
  void prepare(std::uint32_t layer, const CancelFlag& cancel);
  // -1: it is read by spans.
  int find(std::uint32_t layer) const;

 private:
  const ContentOrigin& origin_;
  std::map<std::uint32_t, UniqueFd> files_;
};

// Not shared between threads; it has its own.
class ContentFeed {
 public:
  // `runs`: what will be asked for, in order; they need not ascend. At most `threads` decode at the same time.
  ContentFeed(const ContentOrigin& origin, const SpooledLayers& spooled, const std::vector<index::TreeRun>& runs,
              unsigned threads, const CancelFlag& cancel);
  // The next bytes of the runs, back to back, in pieces: never empty before the end of all. Valid until the next call.
  // Throws what reading threw.
  ByteView next();

 private:
  struct Segment {
    std::uint32_t layer = 0;
    ByteRange stream_range;
    std::size_t at = 0;  // in the batch
  };
  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  struct Batch {
    std::vector<Segment> segments;
    std::size_t bytes = 0;
  };
  struct Content {
    Buffer buffer;
    std::size_t bytes = 0;  // of it
  };
  std::deque<Batch> plan(const std::vector<index::TreeRun>& runs) const;
  std::uint64_t cut_of(const index::TreeRun& run, std::uint64_t done, std::uint64_t room) const;
  void fill();
  Content read(Batch&& batch);
  // Buffers go round: memory that is new to the process costs as much as hashing it.
  Buffer take_buffer(std::size_t bytes);

  const ContentOrigin& origin_;
  const SpooledLayers& spooled_;
  const CancelFlag& cancel_;
  std::deque<Batch> planned_;  // and not begun
  Guarded<std::vector<Buffer>> free_;
  Content given_;                     // to the caller
  OrderedPool<Batch, Content> pool_;  // last: its threads end first
};

}  // namespace varve::indexer
