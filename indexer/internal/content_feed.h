#pragma once
// The contents of many files out of old layers, in the order they are asked for, decoded ahead by several threads: each
// span once or nearly so.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"
#include "core/base/progress.h"
#include "core/base/threads/cancel.h"
#include "core/base/threads/guarded.h"
#include "core/base/threads/ordered_pool.h"
#include "core/index/local_index.h"
#include "core/index/merge/flat_tree.h"
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

// Adds the runs of a file's content, when their layers can be read. Throws CorruptData for a layer that the image does
// not have, and what decoding throws.
void prepare_runs(const ContentOrigin& origin, SpooledLayers& spooled, std::string_view path,
                  const index::FlatEntry& entry, const CancelFlag& cancel, std::vector<index::TreeRun>& runs);

// Not shared between threads; it has its own.
class ContentFeed {
 public:
  // `runs`: what will be asked for, in order; they need not ascend. At most `threads` decode at the same time.
  ContentFeed(const ContentOrigin& origin, const SpooledLayers& spooled, const std::vector<index::TreeRun>& runs,
              unsigned threads, const CancelFlag& cancel);
  // Gives `use` the next bytes of the runs, back to back, in pieces. Throws what reading threw, and Cancelled.
  template <typename Use>
  void take(std::uint64_t length, Progress& progress, Use&& use) {
    while (length != 0) {
      if (rest_.empty()) {
        cancel_.throw_if_cancelled();
        rest_ = next();
      }
      const auto part = rest_.first(std::size_t(std::min<std::uint64_t>(length, rest_.size())));
      use(part);
      progress.add(part.size());
      rest_ = rest_.subspan(part.size());
      length -= part.size();
    }
  }

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
  // Never empty before the end of all; valid until the next call.
  ByteView next();
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
  ByteView rest_;                     // of it
  OrderedPool<Batch, Content> pool_;  // last: its threads end first
};

}  // namespace varve::indexer
