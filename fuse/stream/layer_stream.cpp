#include "fuse/stream/layer_stream.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_lock.h"
#include "core/base/files/private_folder.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/threads/guarded.h"
#include "core/index/format/cold_ranges.h"
#include "fuse/stream/fetch_layer.h"
#include "fuse/stream/local_copies.h"
#include "fuse/stream/read_ahead.h"
#include "fuse/stream/span_fetcher.h"
#include "fuse/stream/store_limit.h"
#include "fuse/stream/store_syncer.h"
#include "fuse/stream/stream_metrics.h"

namespace varve::fuse {
namespace {

const std::string kEvictedPrefix = ".evicted-";  // of folders on their way out

// What all streams share. They keep it, so that a stream may outlive the LayerStreams.
struct Engine {
  Engine(const StreamOptions& stream_options, Clock& clock, UniqueFd store_lock)
      : options(stream_options),
        lock(std::move(store_lock)),
        limit(options.store_limit, options.metrics),
        syncer(options.sync_interval, options.drop_store_pages),
        fetcher(options, clock) {}
  void stop() {
    fetcher.stop();
    syncer.stop();
  }

  const StreamOptions options;
  const UniqueFd lock;
  StoreLimit limit;
  StoreSyncer syncer;
  SpanFetcher fetcher;
};

class StoredLayerStream final : public LayerStream {
 public:
  StoredLayerStream(std::shared_ptr<Engine> engine, std::shared_ptr<FetchLayer> layer)
      : engine_(std::move(engine)),
        layer_(std::move(layer)),
        read_ahead_(*layer_->map, engine_->options.read_ahead_bytes),
        copies_(*layer_) {}

  const std::shared_ptr<FetchLayer>& layer() const { return layer_; }
  const index::LayerMap& map() const override { return *layer_->map; }

  bool is_readable(ByteRange stream_range) const override { return layer_->store.is_readable(clamp(stream_range)); }

  void ensure(ByteRange stream_range, Priority priority, Done done) override {
    const auto range = clamp(stream_range);
    const bool contents_only = priority != Priority::kReader;
    auto missing = layer_->store.missing_spans(range, contents_only);
    if (missing.empty()) return done(nullptr);
    note_miss(priority);
    if (priority != Priority::kReader && engine_->limit.full()) return done(store_full());
    if (copy_missing(missing, range)) missing = layer_->store.missing_spans(range, contents_only);
    if (missing.empty()) return done(nullptr);
    engine_->fetcher.fetch(layer_, std::move(missing), priority, std::move(done));
  }

  void read(std::uint64_t stream_offset, std::span<std::byte> into, Done done) override {
    const auto range = clamp({.offset = stream_offset, .length = into.size()});
    std::vector<std::uint32_t> missing;
    try {
      missing = layer_->store.read(stream_offset, into);
      if (copy_missing(missing, range)) missing = layer_->store.read(stream_offset, into);
    } catch (...) {
      return done(std::current_exception());
    }
    if (missing.empty()) {
      if (const auto ahead = ahead_of(range, false)) fetch_ahead(*ahead, false);
      return done(nullptr);
    }
    note_miss(Priority::kReader);
    if (engine_->options.metrics)
      done = [metrics = engine_->options.metrics, watch = Stopwatch(),
              done = std::move(done)](std::exception_ptr error) {
        metrics->note_wait(watch.seconds());
        done(std::move(error));
      };
    const auto ahead = ahead_of(range, true);
    const bool together = ahead && ahead->why == ReadAhead::Why::kFollows;
    engine_->fetcher.fetch(layer_, std::move(missing), Priority::kReader, std::move(done),
                           {.stream_offset = stream_offset, .into = into.first(range.length)},
                           together ? SpanFetcher::Ahead(ahead->first, ahead->last) : SpanFetcher::Ahead());
    if (ahead && !together) fetch_ahead(*ahead, true);
  }

  bool read_if_readable(std::uint64_t stream_offset, std::span<std::byte> into) override {
    return layer_->store.read(stream_offset, into).empty();
  }

  Digest bring_digest_of_span(std::size_t span) override { return layer_->bring_digest_of_span(span); }

  void note_cold(const Digest& image, const std::vector<ByteRange>& stream_ranges) override {
    read_ahead_.note_cold(image, stream_ranges);
  }

  bool complete() const override { return layer_->store.complete(); }
  bool keep_whole() override { return layer_->store.keep_whole(); }
  void keep_mounted() override { layer_->store.keep_mounted(); }
  std::filesystem::path store_file() const override { return layer_->store.data_path(); }

  StreamStats stats() const override {
    auto& counters = layer_->counters;
    auto contradiction = layer_->store.contradiction();
    auto wait = counters.fetching > 0 ? engine_->fetcher.longest_wait(*layer_) : SpanFetcher::Wait{};
    return {.stream_bytes = layer_->map->stream_bytes,
            .present_bytes = layer_->store.present_bytes(),
            .fetched_bytes = counters.fetched_bytes,
            .local_bytes = counters.local_bytes,
            .mirror_bytes = mirror_bytes(),
            .requests = counters.requests,
            .decoded_bytes = counters.decoded_bytes,
            .copied_bytes = counters.copied_bytes,
            .errors = counters.errors + (contradiction.empty() ? 0 : 1),
            .fetching = counters.fetching,
            .last_error = contradiction.empty() ? counters.last_error.with([](const std::string& last) { return last; })
                                                : std::move(contradiction),
            .waiting_seconds = wait.seconds,
            .waiting_for = std::move(wait.source)};
  }

  Verified verify() override {
    Verified verified;
    const auto digest = layer_->map->layer_digest.to_string();
    const log::Field about_layer("LAYER", digest);
    for (std::size_t span = 0; span < layer_->map->spans.size(); ++span) {
      if (!layer_->store.is_readable(span) && !layer_->store.is_kept_whole()) continue;
      const auto range = layer_->map->spans[span].stream_range;
      verified.checked_bytes += range.length;
      if (layer_->store.verify(span, layer_->bring_digest_of_span(span))) continue;
      log::warn("store of {}: the span at stream offset {} is damaged", digest, range.offset);
      verified.bad.push_back(range);
    }
    verify_units(verified);
    return verified;
  }

  LocalCopies& copies() { return copies_; }

 private:
  // Of what no span holds: the others were looked at.
  void verify_units(Verified& verified) {
    const auto* units = layer_->store.units();
    for (std::size_t unit = 0; units != nullptr && unit < units->size(); ++unit) {
      if (!layer_->store.has_unit(unit)) continue;
      const auto range = units->range(unit);
      const auto [first, last] = layer_->map->spans_of(range);
      bool in_spans = true;
      for (auto span = first; span < last; ++span) in_spans = in_spans && layer_->store.is_readable(span);
      if (in_spans) continue;
      verified.checked_bytes += range.length;
      if (layer_->store.verify_unit(unit)) continue;
      log::warn("store of {}: the content at stream offset {} is damaged", layer_->map->layer_digest.to_string(),
                range.offset);
      verified.bad.push_back(range);
    }
  }

  // True if something was copied.
  bool copy_missing(const std::vector<std::uint32_t>& missing, ByteRange range) {
    if (missing.empty() || !copies_.any()) return false;
    bool copied = false;
    for (const auto span : missing)
      copied = copies_.copy(layer_->map->spans[span].stream_range.common_with(range)) || copied;
    if (copied) engine_->syncer.wake();
    return copied;
  }

  std::uint64_t mirror_bytes() const {
    auto bytes = layer_->blob_sources.mirror_bytes(layer_->blob.digest);
    if (layer_->windows_blob) bytes += layer_->window_sources.mirror_bytes(layer_->windows_blob->digest);
    return bytes;
  }
  ByteRange clamp(ByteRange range) const {
    const auto size = layer_->map->stream_bytes;
    const auto offset = std::min(range.offset, size);
    return {.offset = offset, .length = std::min(range.length, size - offset)};
  }

  void note_miss(Priority priority) {
    engine_->syncer.wake();
    if (priority == Priority::kReader) engine_->limit.note_reader();
  }

  std::optional<ReadAhead::Ahead> ahead_of(ByteRange range, bool missed) {
    if (layer_->store.complete()) return std::nullopt;
    auto ahead = read_ahead_.on_read(range, missed);
    if (!ahead || engine_->limit.full()) return std::nullopt;
    if (ahead->why == ReadAhead::Why::kNeighbour && !engine_->options.read_next_when_idle) return std::nullopt;
    // Where the reader gets on by copies, what the old version has and nobody has read there is not expected to be
    // read.
    if (ahead->why == ReadAhead::Why::kFollows && copies_.any()) return std::nullopt;
    return ahead;
  }

  void fetch_ahead(const ReadAhead::Ahead& ahead, bool missed) {
    engine_->syncer.wake();
    const bool reads_on = ahead.why == ReadAhead::Why::kReadsOn;
    const auto priority = reads_on ? Priority::kReadAhead : Priority::kBackground;
    // What can be copied is, when it is read; for the rest see ahead_of().
    const auto enough = missed && reads_on ? LocalCopies::Found::kHere : LocalCopies::Found::kKnown;
    auto first = ahead.first;
    for (auto span = ahead.first; span < ahead.last && copies_.any(); ++span) {
      if (!copies_.has_all(layer_->map->spans[span].stream_range, enough)) continue;
      if (first < span) engine_->fetcher.fetch_ahead(layer_, first, span, priority);
      first = span + 1;
    }
    if (first < ahead.last) engine_->fetcher.fetch_ahead(layer_, first, ahead.last, priority);
  }

  std::exception_ptr store_full() const {
    return std::make_exception_ptr(TemporaryError(
        fmt::format("layer {}: the store is full: {} bytes may be held (--store-size), and what is there is in use",
                    layer_->map->layer_digest.to_string(), engine_->limit.max_bytes())));
  }

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<FetchLayer> layer_;
  ReadAhead read_ahead_;
  LocalCopies copies_;
};

void add_to(StreamTotals& totals, const StoredLayerStream& stream) {
  const auto stats = stream.stats();
  const auto local = std::min(stats.local_bytes, stats.fetched_bytes);
  const auto mirror = std::min(stats.mirror_bytes, stats.fetched_bytes - local);
  totals.errors += stats.errors;
  if (stream.layer()->blob.media_type == index::kPackMediaType) {
    totals.pack_bytes += stats.fetched_bytes;
    return;
  }
  totals.local_bytes += local + stats.copied_bytes;
  totals.mirror_bytes += mirror;
  totals.registry_bytes += stats.fetched_bytes - local - mirror;
}

// A map that leads outside the blobs must not get as far as a range request. Only asked of what will be fetched.
void check_blobs(const index::LayerMap& map, const oci::Descriptor& layer_blob,
                 const index::LayerIndexBlobs& index_blobs) {
  const auto name = map.layer_digest.to_string();
  if (layer_blob.digest != map.layer_digest)
    fail<CorruptData>("layer {}: its map is of layer {}", layer_blob.digest.to_string(), name);
  if (layer_blob.size != map.compressed_bytes)
    fail<CorruptData>("layer {}: it has {} bytes, its map says {}", name, layer_blob.size, map.compressed_bytes);
  if (!index_blobs.windows) return;
  if (index_blobs.windows->digest != map.windows_digest || index_blobs.windows->size != map.windows_bytes)
    fail<CorruptData>("layer {}: the index names the windows blob {} of {} bytes, its map {} of {}", name,
                      index_blobs.windows->digest.to_string(), index_blobs.windows->size,
                      map.windows_digest.to_string(), map.windows_bytes);
}

void check_spans(const index::LayerMap& map) {
  std::uint64_t at = 0;
  for (const auto& span : map.spans) {
    const bool right = span.stream_range.offset == at && span.stream_range.fits_in(map.stream_bytes) &&
                       span.compressed_range.fits_in(map.compressed_bytes) && span.window.fits_in(map.windows_bytes);
    if (!right)
      fail<CorruptData>("layer map of {}: the span at stream offset {} is out of place", map.layer_digest.to_string(),
                        at);
    at = span.stream_range.end();
  }
  if (at != map.stream_bytes)
    fail<CorruptData>("layer map of {}: its spans end at {}, not {}", map.layer_digest.to_string(), at,
                      map.stream_bytes);
}

// When a closed layer was last used is its folder's time.
void note_use(const std::filesystem::path& layer_dir) { ::utimensat(AT_FDCWD, layer_dir.c_str(), nullptr, 0); }

// Folders of the store are named by all digests.
std::string folder_of(const StoredLayer& stored) {
  auto name = stored.layer.hex();
  if (stored.map) name += '-' + stored.map->hex();
  if (stored.entries) name += '-' + stored.entries->hex();
  return name;
}

std::optional<StoredLayer> parse_folder(std::string_view name) {
  std::vector<Digest> digests;
  for (std::size_t at = 0; at <= name.size();) {
    const auto dash = std::min(name.find('-', at), name.size());
    const auto digest = Digest::try_parse(fmt::format("sha256:{}", name.substr(at, dash - at)));
    if (!digest || digests.size() == 3) return std::nullopt;
    digests.push_back(*digest);
    at = dash + 1;
  }
  StoredLayer stored{.layer = digests[0], .map = std::nullopt};
  if (digests.size() > 1) stored.map = digests[1];
  if (digests.size() > 2) stored.entries = digests[2];
  return stored;
}

StoredLayer key_of(const Digest& layer, const index::LayerIndexBlobs& blobs) {
  StoredLayer key{.layer = layer, .map = blobs.map.digest};
  if (blobs.entries.digest != Digest()) key.entries = blobs.entries.digest;
  return key;
}

class StoredLayerStreams final : public LayerStreams, private StoreContents {
 public:
  StoredLayerStreams(std::filesystem::path store_dir, std::shared_ptr<Engine> engine)
      : store_dir_(std::move(store_dir)), engine_(std::move(engine)) {
    engine_->syncer.set_after_round([this] { return engine_->limit.enforce(*this); });
  }
  ~StoredLayerStreams() override { stop(); }

  std::shared_ptr<LayerStream> stream(std::shared_ptr<const index::LayerMap> map, const oci::Descriptor& layer_blob,
                                      std::shared_ptr<oci::Repository> image_repository,
                                      const index::LayerIndexBlobs& index_blobs,
                                      std::shared_ptr<oci::Repository> index_repository) override {
    if (image_repository) check_blobs(*map, layer_blob, index_blobs);
    auto streams = streams_.lock();
    close_unused(*streams);
    const auto key = key_of(map->layer_digest, index_blobs);
    auto& stream = (*streams)[key];
    if (!stream) {
      try {
        stream = open_stream(std::move(map), layer_blob, index_blobs, key, *streams);
      } catch (...) {
        std::erase_if(*streams, [](const auto& entry) { return !entry.second; });
        throw;
      }
    }
    stream->layer()->blob_sources.add(std::move(image_repository));
    if (index_blobs.windows) stream->layer()->window_sources.add(std::move(index_repository));
    return stream;
  }

  std::uint64_t store_bytes() const override { return varve::bytes_on_disk(store_dir_); }
  std::map<std::string, LinkSpeed> links() const override { return engine_->fetcher.links(); }

  StreamTotals totals() const override {
    return streams_.with([this](const Streams& streams) {
      auto totals = closed_totals_;
      for (const auto& [key, stream] : streams) add_to(totals, *stream);
      return totals;
    });
  }

  bool somebody_waits() const override { return engine_->fetcher.somebody_waits(); }
  bool busy() const override { return engine_->fetcher.busy(); }
  std::vector<StoredLayer> stored_layers() const override {
    const auto folders = find_stored_layers(store_dir_);
    auto layers = folders;
    streams_.with([&](const Streams& streams) {
      for (const auto& [key, stream] : streams)
        if (!std::ranges::binary_search(folders, key)) layers.push_back(key);
    });
    std::ranges::sort(layers);
    return layers;
  }

  std::optional<std::uint64_t> remove(const Digest& layer) override {
    const auto is_open = [&] {
      auto streams = streams_.lock();
      for (const auto& [key, stream] : *streams) stream->copies().forget_source(layer);
      close_unused(*streams);
      return std::any_of(streams->begin(), streams->end(),
                         [&](const auto& entry) { return entry.first.layer == layer; });
    };
    if (is_open()) return std::nullopt;
    std::uint64_t freed = 0;
    for (const auto& stored : find_stored_layers(store_dir_)) {
      if (stored.layer != layer) continue;
      const auto dir = folder_in_store(store_dir_, stored);
      const auto bytes = varve::bytes_on_disk(dir);
      if (!remove_closed(dir.filename().string())) return std::nullopt;  // opened since
      freed += bytes;
    }
    return freed;
  }

  const index::UnitTable* contents(const StoredLayer& open) const override {
    const auto layer = find_open(open);
    return layer ? layer->store.units() : nullptr;
  }

  void note_contents(const StoredLayer& open, const index::LayerEntries& entries) override {
    const auto layer = find_open(open);
    if (!layer || !open.entries) return;
    if (entries.layer_digest != open.layer)
      fail<CorruptData>("layer entries {}: they are of layer {}, not of {}", open.entries->to_string(),
                        entries.layer_digest.to_string(), open.layer.to_string());
    layer->store.set_units(index::UnitTable::make(entries, *open.entries, layer->map->stream_bytes));
  }

  void set_sources(const StoredLayer& open, const std::vector<StoredLayer>& sources) override {
    auto streams = streams_.lock();
    const auto target = streams->find(open);
    if (target == streams->end()) return;
    std::vector<std::shared_ptr<FetchLayer>> layers;
    for (const auto& source : sources)
      if (const auto found = streams->find(source); found != streams->end() && found != target)
        layers.push_back(found->second->layer());
    target->second->copies().set_sources(std::move(layers));
  }

  void close_unused() override { close_unused(*streams_.lock()); }

  void stop() override { engine_->stop(); }

 private:
  using Streams = std::map<StoredLayer, std::shared_ptr<StoredLayerStream>>;

  std::shared_ptr<FetchLayer> find_open(const StoredLayer& open) const {
    return streams_.with([&](const Streams& streams) -> std::shared_ptr<FetchLayer> {
      const auto found = streams.find(open);
      return found == streams.end() ? nullptr : found->second->layer();
    });
  }

  std::shared_ptr<StoredLayerStream> open_stream(std::shared_ptr<const index::LayerMap> map,
                                                 const oci::Descriptor& layer_blob,
                                                 const index::LayerIndexBlobs& index_blobs, const StoredLayer& key,
                                                 const Streams& streams) {
    check_spans(*map);
    const auto dir = store_dir_ / folder_of(key);
    if (std::error_code absent; !std::filesystem::exists(dir, absent)) take_over_folder(key, dir, streams);
    const SpanStoreOptions options{.drop_pages = engine_->options.drop_store_pages,
                                   .overflow_bytes = engine_->options.overflow_bytes,
                                   .entries = key.entries};
    auto layer = std::make_shared<FetchLayer>(std::move(map), layer_blob, index_blobs.windows, dir, options);
    note_use(dir);
    engine_->syncer.add(layer);
    return std::make_shared<StoredLayerStream>(engine_, std::move(layer));
  }

  // A layer that was indexed anew need not be fetched anew: what is there under another map that nobody has open is
  // checked span by span before it is used, or at once where the spans are the same (SpanStore). Units are not taken
  // over from other entries.
  void take_over_folder(const StoredLayer& key, const std::filesystem::path& dir, const Streams& streams) const {
    auto folders = find_stored_layers(store_dir_);
    std::ranges::stable_partition(folders, [&](const StoredLayer& stored) { return stored.map == key.map; });
    for (const auto& stored : folders) {
      if (stored.layer != key.layer || streams.contains(stored)) continue;
      std::error_code failed;
      std::filesystem::rename(store_dir_ / folder_of(stored), dir, failed);
      if (!failed) return;
      log::warn("store of {}: what is there cannot be taken over: {}", key.layer.to_string(), failed.message());
    }
  }

  // Streams that nobody holds any more are closed here, under the lock: a store is never open twice.
  void close_unused(Streams& streams) {
    for (const auto& [key, stream] : streams)  // two may be each other's sources
      if (stream.use_count() == 1) stream->copies().set_sources({});
    std::erase_if(streams, [&](const auto& entry) {
      if (entry.second.use_count() > 1) return false;
      const auto& layer = entry.second->layer();
      engine_->syncer.remove(layer);
      if (layer.use_count() == 1) {
        note_use(store_dir_ / folder_of(entry.first));
        add_to(closed_totals_, *entry.second);
        return true;
      }
      engine_->syncer.add(layer);  // something is still being fetched for it
      return false;
    });
  }

  std::vector<std::shared_ptr<FetchLayer>> open_layers() override {
    std::vector<std::shared_ptr<FetchLayer>> layers;
    auto streams = streams_.lock();
    close_unused(*streams);
    for (const auto& [digest, stream] : *streams) layers.push_back(stream->layer());
    return layers;
  }

  std::vector<ClosedLayer> closed_layers() override {
    std::vector<ClosedLayer> closed;
    const auto now = ::time(nullptr);
    for (const auto& stored : find_stored_layers(store_dir_)) {
      if (streams_.with([&](const Streams& streams) { return streams.contains(stored); })) continue;
      const auto name = folder_of(stored);
      const auto dir = store_dir_ / name;
      struct stat status {};
      if (::stat(dir.c_str(), &status) != 0) continue;
      closed.push_back({.name = name,
                        .idle_seconds = std::uint32_t(std::clamp<std::int64_t>(now - status.st_mtime, 0, UINT32_MAX)),
                        .bytes = varve::bytes_on_disk(dir)});
    }
    return closed;
  }

  // Renamed first, so that a crash leaves no half of a layer under its name.
  bool remove_closed(const std::string& name) override {
    const auto gone = store_dir_ / (kEvictedPrefix + name);
    std::error_code failed;
    {
      auto streams = streams_.lock();
      const auto stored = parse_folder(name);
      if (!stored || streams->contains(*stored)) return false;
      std::filesystem::rename(store_dir_ / name, gone, failed);
    }
    if (!failed) std::filesystem::remove_all(gone, failed);
    if (failed) log::warn("evict {}: {}", (store_dir_ / name).string(), failed.message());
    return !failed;
  }

  std::uint64_t bytes_on_disk() override { return store_bytes(); }

  const std::filesystem::path store_dir_;
  const std::shared_ptr<Engine> engine_;
  mutable Guarded<Streams> streams_;
  StreamTotals closed_totals_;  // under its lock
};

void remove_evicted(const std::filesystem::path& store_dir) {
  std::vector<std::filesystem::path> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(store_dir))
    if (entry.path().filename().string().starts_with(kEvictedPrefix)) leftovers.push_back(entry.path());
  std::error_code ignored;
  for (const auto& path : leftovers) std::filesystem::remove_all(path, ignored);
}

UniqueFd lock_store(const std::filesystem::path& store_dir) {
  auto lock = try_lock(store_dir / "lock", 0644);
  if (!lock) fail<TemporaryError>("store {}: another process uses it", store_dir.string());
  return std::move(*lock);
}

}  // namespace

void StreamStats::add(const StreamStats& now, const StreamStats& before) {
  stream_bytes += now.stream_bytes;
  present_bytes += now.present_bytes;
  fetched_bytes += now.fetched_bytes - before.fetched_bytes;
  local_bytes += now.local_bytes - before.local_bytes;
  mirror_bytes += now.mirror_bytes - before.mirror_bytes;
  requests += now.requests - before.requests;
  decoded_bytes += now.decoded_bytes - before.decoded_bytes;
  copied_bytes += now.copied_bytes - before.copied_bytes;
  errors += now.errors - before.errors;
  fetching += now.fetching;
  if (now.errors > before.errors || now.last_error != before.last_error) last_error = now.last_error;
  if (now.waiting_for.empty() || now.waiting_seconds < waiting_seconds) return;
  waiting_seconds = now.waiting_seconds;
  waiting_for = now.waiting_for;
}

ColdBytes cold_bytes_of(const LayerStream& stream, const std::vector<ByteRange>& cold) {
  ColdBytes sum;
  index::for_each_span_within(stream.map(), cold, [&](std::size_t span) {
    const auto& range = stream.map().spans[span].stream_range;
    sum.bytes += range.length;
    if (stream.is_readable(range)) sum.present_bytes += range.length;
  });
  return sum;
}

std::vector<StoredLayer> find_stored_layers(const std::filesystem::path& store_dir) {
  std::vector<StoredLayer> layers;
  std::error_code ignored;
  for (auto entry = std::filesystem::directory_iterator(store_dir, ignored);
       entry != std::filesystem::directory_iterator(); entry.increment(ignored))
    if (const auto stored = parse_folder(entry->path().filename().string()))
      if (std::filesystem::exists(entry->path() / "presence", ignored)) layers.push_back(*stored);
  std::sort(layers.begin(), layers.end());
  return layers;
}

std::filesystem::path folder_in_store(const std::filesystem::path& store_dir, const StoredLayer& stored) {
  return store_dir / folder_of(stored);
}

std::unique_ptr<LayerStreams> LayerStreams::open(const std::filesystem::path& store_dir, const StreamOptions& options,
                                                 Clock& clock) {
  make_private_folder(store_dir);  // it has what is in images of private registries, whatever modes files have there
  auto engine = std::make_shared<Engine>(options, clock, lock_store(store_dir));
  remove_evicted(store_dir);
  return std::make_unique<StoredLayerStreams>(store_dir, std::move(engine));
}

}  // namespace varve::fuse
