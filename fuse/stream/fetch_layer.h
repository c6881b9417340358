#pragma once
// One layer as the fetching code sees it: its map, where its blobs can be had, its part of the store, its counters.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/threads/guarded.h"
#include "core/index/format/layer_map.h"
#include "core/oci/repository.h"
#include "fuse/stream/range_fetcher.h"
#include "fuse/stream/span_store.h"
#include "fuse/stream/window_store.h"

namespace varve::fuse {

// The repositories that serve one blob. Safe to use from any thread.
class SourceList {
 public:
  // Null, and what is in the list already, is ignored.
  void add(std::shared_ptr<oci::Repository> repository);
  // The repository for the nth attempt, round and round; null if there is none.
  std::shared_ptr<oci::Repository> nth(unsigned attempt) const;
  unsigned size() const;
  // Places that may have a copy each: the repositories and their mirrors.
  unsigned copies() const;
  // Of the bytes of the blob that were read here, those from mirrors.
  std::uint64_t mirror_bytes(const Digest& blob) const;
  // Tells the repository of that attempt, if it is so, that what it gave was wrong; see Repository::note_wrong_bytes.
  void note_wrong_bytes(unsigned attempt, const oci::Descriptor& blob, ByteRange range,
                        const std::exception_ptr& error) const;
  // The attempt number to begin with: of the repository that last gave good bytes.
  unsigned preferred() const { return preferred_.load(std::memory_order_relaxed); }
  void prefer(unsigned attempt) { preferred_.store(attempt, std::memory_order_relaxed); }

 private:
  std::vector<std::shared_ptr<oci::Repository>> all() const;

  mutable Guarded<std::vector<std::shared_ptr<oci::Repository>>> repositories_;
  std::atomic<unsigned> preferred_ = 0;
};

struct FetchCounters {
  std::atomic<std::uint64_t> fetched_bytes = 0;
  std::atomic<std::uint64_t> local_bytes = 0;
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> decoded_bytes = 0;
  std::atomic<std::uint64_t> copied_bytes = 0;
  std::atomic<std::uint64_t> errors = 0;
  std::atomic<std::uint64_t> fetching = 0;
  Guarded<std::string> last_error;

  void count_bytes(std::uint64_t bytes, bool from_here) {
    fetched_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (from_here) local_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
};

struct FetchLayer {
  FetchLayer(std::shared_ptr<const index::LayerMap> layer_map, oci::Descriptor layer_blob,
             std::optional<oci::Descriptor> layer_windows, const std::filesystem::path& dir,
             const SpanStoreOptions& options)
      : map(std::move(layer_map)),
        blob(std::move(layer_blob)),
        windows_blob(std::move(layer_windows)),
        store(dir, map, options),
        windows(dir, map) {}

  // What the index says of a span's bytes; absent if that is not here.
  std::optional<Digest> digest_of_span(std::size_t span);
  // The same, fetched if it is not here. Throws what the source does, and CorruptData.
  Digest bring_digest_of_span(std::size_t span);
  // SpanStore::verify(). Where nothing says what its bytes must be they are taken for wrong.
  bool verify_span(std::size_t span);

  const std::shared_ptr<const index::LayerMap> map;
  const oci::Descriptor blob;
  const std::optional<oci::Descriptor> windows_blob;
  SpanStore store;
  WindowStore windows;
  SourceList blob_sources;
  SourceList window_sources;
  FetchCounters counters;
  const std::uint32_t opened_seconds = coarse_seconds();
  // What the source said when it was last asked, if that was a failure. Guarded by the fetcher's mutex.
  std::string last_failure;
  // Set by the fetcher when it first meets the layer.
  std::unique_ptr<PieceSource> blob_pieces;
  std::unique_ptr<PieceSource> window_pieces;
};

}  // namespace varve::fuse
