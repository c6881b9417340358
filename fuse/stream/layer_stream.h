#pragma once
// The stream of one layer as readers see it: what is in the store is read, what is not is fetched, verified, decoded
// and kept.
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/index/format/image_index.h"
#include "core/index/format/layer_entries.h"
#include "core/index/format/layer_map.h"
#include "core/index/unit_table.h"
#include "core/oci/repository.h"
#include "fuse/stream/link_meter.h"

namespace varve::fuse {

// A reader that waits comes before read-ahead, read-ahead before background work.
enum class Priority : std::uint8_t { kReader, kReadAhead, kBackground };

// Counters since the stream was opened; a snapshot.
struct StreamStats {
  std::uint64_t stream_bytes = 0;   // of the whole layer
  std::uint64_t present_bytes = 0;  // stream side, in the store
  std::uint64_t fetched_bytes = 0;  // compressed side, from any source, windows included
  std::uint64_t local_bytes = 0;    // of those, from files of this machine
  std::uint64_t mirror_bytes = 0;   // of those, from mirrors of the registry
  std::uint64_t requests = 0;       // range requests sent
  std::uint64_t decoded_bytes = 0;  // stream side
  std::uint64_t copied_bytes = 0;   // stream side: contents that were here under other layers
  std::uint64_t errors = 0;         // failed fetches, after all retries
  std::uint64_t fetching = 0;       // spans queued or under way now
  std::string last_error;           // names the object; "" if none. Also of attempts after which it is tried again
  // Of the reader that waits longest for a source; also of a pull whose source fails.
  double waiting_seconds = 0;
  std::string waiting_for;  // Repository::name(); "" if nobody waits

  // Another stream: what it has, and what it counted since `before`.
  void add(const StreamStats& now, const StreamStats& before);
};

// One layer. Safe to use from any thread. Made by LayerStreams.
class LayerStream {
 public:
  // Called exactly once, from any thread (perhaps the caller's, before the call returns); null when all went well. It
  // may call read() and ensure(), but must not wait.
  using Done = std::function<void(std::exception_ptr error)>;

  virtual ~LayerStream() = default;
  virtual const index::LayerMap& map() const = 0;

  // True if all of the range is in the store: nothing need be fetched to read it.
  virtual bool is_readable(ByteRange stream_range) const = 0;
  // Makes the range readable, for who does not read it now; contents that are here under other layers are copied, the
  // rest is fetched. Where contents came so, read-ahead and background leave headers of the tar, which no file has.
  // Callers that want the same span share one download and its failure. Fails with an error that names the layer, the
  // offset and the reason no later than the deadline of StreamOptions.
  virtual void ensure(ByteRange stream_range, Priority priority, Done done) = 0;
  // Reads, for somebody who waits, and fetches first what is missing; fails as ensure(). `into` must live until `done`
  // is called. Bytes past the end of the stream read as zeros, as a last 512-byte block is padded. What was fetched is
  // in the store soon after.
  virtual void read(std::uint64_t stream_offset, std::span<std::byte> into, Done done) = 0;
  // What the index says of a span's bytes; fetched if it is not here. Throws what the source does, and CorruptData.
  virtual Digest bring_digest_of_span(std::size_t span) = 0;
  // As read() if nothing need be fetched; else false, and `into` may hold anything.
  virtual bool read_if_readable(std::uint64_t stream_offset, std::span<std::byte> into) = 0;

  // What the index of an image says is cold of this layer: not fetched ahead of readers of something else. A layer of
  // several images is cold where all that were opened say so; a later call for the same image replaces what it said.
  virtual void note_cold(const Digest& image, const std::vector<ByteRange>& stream_ranges) = 0;

  // True while every span is in the file of the store.
  virtual bool complete() const = 0;
  // If it is complete, store_file() can be mounted directly: no part of it goes until the machine starts anew. False if
  // it is not complete.
  virtual bool keep_whole() = 0;
  // The same for a file that an earlier process has mounted when it was complete, though the record may lack what was
  // stored last.
  virtual void keep_mounted() = 0;
  virtual std::filesystem::path store_file() const = 0;

  virtual StreamStats stats() const = 0;
  // Re-digests every readable span, and all of a file that was mounted; bad ones are dropped, so that they are fetched
  // anew. Returns (bytes checked, bad spans).
  struct Verified {
    std::uint64_t checked_bytes = 0;
    std::vector<ByteRange> bad;  // stream side
  };
  virtual Verified verify() = 0;
};

// Bytes of spans that lie wholly in the ranges (in order, not overlapping): all of them, and those that are present.
struct ColdBytes {
  std::uint64_t bytes = 0;
  std::uint64_t present_bytes = 0;
};
ColdBytes cold_bytes_of(const LayerStream& stream, const std::vector<ByteRange>& cold);

class StreamMetrics;

// Of all streams since the LayerStreams was opened, those that are closed again too. Bytes by source, as ImageStats has
// them (fuse/control/control_messages.h).
struct StreamTotals {
  std::uint64_t registry_bytes = 0;
  std::uint64_t mirror_bytes = 0;
  std::uint64_t pack_bytes = 0;   // start-up packs, wherever they came from
  std::uint64_t local_bytes = 0;  // files of this machine, and contents that were here under other layers
  std::uint64_t errors = 0;       // failed fetches, after all retries
};

// How large the store may become, and what must not go for it.
struct StoreLimitOptions {
  std::uint64_t max_bytes = 0;             // on disk, windows and logs included; 0 = no limit
  std::uint32_t reader_idle_seconds = 10;  // what was used since is not evicted for readers,
  std::uint32_t ahead_idle_seconds = 600;  // nor what was used since for pulls and read-ahead
  std::uint32_t grace_seconds = 5;  // between deciding and doing: who was told that a span is there reads it meanwhile
};

struct StreamOptions {
  unsigned decode_threads = 0;                   // 0 = one per core
  unsigned connections = 8;                      // range requests in flight to one origin, over all layers
  std::uint64_t max_request_bytes = 4 << 20;     // compressed side, of one merged request
  std::uint64_t merge_gap_bytes = 64 << 10;      // spans nearer than this are fetched in one request
  std::uint64_t max_in_flight_bytes = 32 << 20;  // compressed bytes downloaded and not decoded yet, plus decode buffers
  std::uint64_t read_ahead_bytes = 8 << 20;      // stream side, most that is fetched ahead of a sequential reader
  std::chrono::milliseconds deadline{120'000};   // of one ensure() or read()
  bool read_next_when_idle =
      true;  // fetch the span after one that a reader missed, while the link has nothing else to do
  bool drop_store_pages =
      true;  // give the store's page cache back soon after use: both kinds of mount keep a copy of their own
  std::uint64_t overflow_bytes = 8 << 20;        // spans of one layer kept in memory while the disk is full
  std::chrono::milliseconds sync_interval{500};  // between writing spans and recording them as present on disk
  StoreLimitOptions store_limit = {};
  std::shared_ptr<StreamMetrics> metrics = nullptr;  // null: nothing is counted for them
};

// A folder of the store: a layer as one map and one blob of entries describe it.
struct StoredLayer {
  Digest layer;
  std::optional<Digest>
      map;  // absent: a folder that a version before 0.3 made; the first map that comes for the layer takes it over
  std::optional<Digest> entries = std::nullopt;  // absent: made by a version that knew no units, or none were named
  auto operator<=>(const StoredLayer&) const = default;
};

// The folders that are there, whoever uses them, in order.
std::vector<StoredLayer> find_stored_layers(const std::filesystem::path& store_dir);
std::filesystem::path folder_in_store(const std::filesystem::path& store_dir, const StoredLayer& stored);

// All layer streams of a daemon, shared by its images: one store, one set of connections and decoders.
class LayerStreams {
 public:
  // `store_dir` is created. Layers found there from an earlier run are usable at once; torn ones are thrown away. No
  // thread runs before the first fetch, so the process may still fork. Throws TemporaryError if another process (or
  // LayerStreams) uses the folder.
  static std::unique_ptr<LayerStreams> open(const std::filesystem::path& store_dir, const StreamOptions& options,
                                            Clock& clock = Clock::system());
  virtual ~LayerStreams() = default;

  // The stream of a layer: the same object for the same layer digest, map and entries (the blobs that `index_blobs`
  // names), as one image's index must not speak for another's. `image_repository` serves the layer blob,
  // `windows_repository` the windows; further calls for the same layer and map add their repositories as alternatives,
  // tried in turn. Either may be null: what is in the store can then be read and verified, and ensure() of the rest
  // fails. Throws CorruptData if map and descriptors are not of one layer. A stream stays usable for reading what is
  // readable after the LayerStreams is gone.
  virtual std::shared_ptr<LayerStream> stream(std::shared_ptr<const index::LayerMap> map,
                                              const oci::Descriptor& layer_blob,
                                              std::shared_ptr<oci::Repository> image_repository,
                                              const index::LayerIndexBlobs& index_blobs,
                                              std::shared_ptr<oci::Repository> index_repository) = 0;
  // A reader waits for what is fetched, or somebody fetches ahead of one.
  virtual bool somebody_waits() const = 0;
  // Bytes of any layer are being fetched or decoded, for whomever.
  virtual bool busy() const = 0;
  // Bytes on disk of the whole store; above the limit for a while when readers need more at once than may be evicted.
  virtual std::uint64_t store_bytes() const = 0;
  // What the ways to the registries that were asked for bytes can do, by host; a registry's mirrors are part of it.
  virtual std::map<std::string, LinkSpeed> links() const = 0;
  virtual StreamTotals totals() const = 0;
  // Layers that are open or have a folder in the store, in order.
  virtual std::vector<StoredLayer> stored_layers() const = 0;

  // Of a layer that is open, as long as it is; null if they are not known, or the layer contradicts them.
  virtual const index::UnitTable* contents(const StoredLayer& open) const = 0;
  // For a layer that is open; else nothing happens. Its entries, whose blob `open` names. Throws CorruptData if they
  // cannot be of the layer, and std::system_error.
  virtual void note_contents(const StoredLayer& open, const index::LayerEntries& entries) = 0;
  // Where contents that the layer lacks are looked for, likely ones first, before they are fetched: open layers whose
  // contents are known. They stay open as long as it does. What is copied is digested first, whatever the sources are.
  virtual void set_sources(const StoredLayer& open, const std::vector<StoredLayer>& sources) = 0;

  // Closes the layers that nobody holds any more, with their sources; else the next call of stream() does.
  virtual void close_unused() = 0;

  // Removes what is here of a layer, under whatever map; returns the bytes that it took on disk. Absent, and nothing is
  // removed, if somebody has it open.
  virtual std::optional<std::uint64_t> remove(const Digest& layer) = 0;

  // Fails all pending ensure() calls with Cancelled, then ends the threads (which may wait for a transfer to notice)
  // and brings the store to disk. Later calls of ensure() fail at once. The destructor does the same.
  virtual void stop() = 0;
};

}  // namespace varve::fuse
