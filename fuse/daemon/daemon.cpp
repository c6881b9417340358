#include "fuse/daemon/daemon.h"

#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/daemon/pull.h"
#include "fuse/daemon/remembered_image.h"
#include "fuse/daemon/stale_mounts.h"
#include "fuse/mount/erofs_mount.h"
#include "fuse/mount/fuse_mount.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxMapBytes = std::uint64_t(4) << 30;

MountSettings settings_of(const DaemonOptions& options) {
  return {.source = mount_source(options.paths),
          .threads = options.fuse_threads,
          .read_ahead_kb = options.read_ahead_kb,
          .direct_io = options.erofs_direct_io};
}

fs::path checked_mount_point(const fs::path& dir) {
  std::error_code error;
  const auto path = fs::canonical(dir, error);
  if (error) throw std::system_error(error, fmt::format("mount at {}", dir.string()));
  if (!fs::is_directory(path)) fail<UsageError>("mount at {}: not a folder", path.string());
  if (!fs::is_empty(path)) fail<UsageError>("mount at {}: the folder is not empty", path.string());
  return path;
}

void bind(const fs::path& from, const fs::path& to) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) != 0)
    fail_errno("bind {} to {}", from.string(), to.string());
}

[[noreturn]] void explain_busy(const fs::path& dir, const std::system_error& error) {
  if (error.code().value() != EBUSY) throw error;
  throw std::system_error(
      EBUSY, std::generic_category(),
      fmt::format(
          "unmount {}: a process is in it (`fuser -vm {}` names it; `varve unmount --detach` takes it out of sight)",
          dir.string(), dir.string()));
}

std::vector<PulledLayer> layers_to_pull(const ServedImage& image, bool cold) {
  const auto marks = image.cold();
  std::vector<PulledLayer> layers;
  for (const auto& layer : image.distinct_layers())
    layers.push_back(
        {.stream = layer, .left_out = cold ? std::vector<ByteRange>() : marks->of(layer->map().layer_digest)});
  return layers;
}

PullResult pull_result(const ServedImage& image, const ImageStats& before, bool finished) {
  const auto after = image.stats();
  return {.image = image.digest(),
          .fetched_bytes = after.fetched_bytes - before.fetched_bytes,
          .present_bytes = after.present_bytes,
          .image_stream_bytes = after.image_stream_bytes,
          .cold_bytes = after.cold_bytes,
          .cold_present_bytes = after.cold_present_bytes,
          .finished = finished};
}

}  // namespace

struct Daemon::PullJob {
  std::shared_ptr<ServedImage> image;
  std::atomic<bool> finished = false;
  std::atomic<bool> stop = false;
  std::jthread thread;
};

Daemon::Daemon(DaemonOptions options)
    : options_(std::move(options)),
      settings_(settings_of(options_)),
      local_(std::make_shared<index::LocalIndex>(options_.paths.root, options_.trust)),
      known_layers_(options_.paths.root / "layers"),
      seen_images_(options_.paths.root / "seen"),
      streams_(LayerStreams::open(options_.paths.store_dir(), options_.streams)),
      kept_(std::make_shared<KeptConnections>(options_.descriptors)),
      proofs_(local_) {
  fs::create_directories(options_.paths.images_dir());
  take_over();
}

Daemon::~Daemon() { stop(); }

void Daemon::refuse_if_stopping() const {
  if (stopping_) throw TemporaryError("the daemon is shutting down");
}

// A registry that is away says nothing against what is here. One that answers, even with a refusal, is believed.
std::shared_ptr<ServedImage> Daemon::open_now_or_as_seen(const ImageSpec& spec, index::IndexPlace place) {
  try {
    auto opened = ServedImage::open(spec, local_, *streams_, place);
    seen_images_.remember(*opened);
    return opened;
  } catch (const TemporaryError& error) {
    const auto seen = place == index::IndexPlace::kHere ? seen_images_.find(spec) : std::nullopt;
    if (!seen) throw;
    log::warn("{}; {} is taken to be what it was when it was last opened, {}", error.what(), spec.reference,
              seen->digest.to_string());
    return ServedImage::reopen(spec, open_remembered(*seen), seen->index, index::Judged::kNow, local_, *streams_);
  }
}

std::shared_ptr<ServedImage> Daemon::open(const ImageSpec& spec, index::IndexPlace place) {
  refuse_if_stopping();
  auto opened = open_now_or_as_seen(spec, place);
  for (const auto& blobs : opened->index().blobs.layers) known_layers_.remember(blobs);
  // An image that is mounted is open already: its counters go on. Not by another index, though: that one was not asked
  // for, and may not be trusted by who asks.
  auto served = state_.with([&](State& state) {
    for (const auto& backing : state.backings) {
      if (!backing->mounted->image().shows_the_same_as(*opened)) continue;
      auto same = backing->mounted->served();
      same->take_marks_of(*opened);
      return same;
    }
    return opened;
  });
  proofs_.watch(served);
  return served;
}

std::shared_ptr<BlobMount> Daemon::shared_blobs() {
  auto blobs = blobs_.lock();
  if (!blobs) {
    fs::create_directories(options_.paths.blobs_dir());
    blobs = std::make_shared<BlobMount>(options_.paths.blobs_dir(), settings_, channels_, *kept_);
    blobs_ = blobs;
  }
  return blobs;
}

Daemon::Backing& Daemon::add_backing(std::unique_ptr<Backing> backing, const std::shared_ptr<ServedImage>& image,
                                     const fs::path& dir, MountMode mode, bool recorded) {
  const auto recorder = recorded ? std::make_shared<ReadRecorder>() : nullptr;
  if (mode != MountMode::kFuse) {
    auto why = why_no_kernel_mode();
    if (why.empty()) {
      try {
        auto blobs = recorded ? std::make_shared<BlobMount>(backing->folders.back(), settings_, channels_, *kept_)
                              : shared_blobs();
        backing->mounted = MountedImage::by_kernel(image, dir, std::move(blobs), settings_, *kept_, recorder);
      } catch (const std::system_error& error) {
        if (!is_lack_of_kernel(error.code().value())) throw;
        why = fmt::format("kernel mode needs Linux 6.12 with EROFS ({})", error.what());
      }
    }
    if (!backing->mounted && mode == MountMode::kKernel) fail<Unsupported>("{}", why);
    if (!backing->mounted) backing->why = why + "; using fuse mode";
  }
  if (!backing->mounted) backing->mounted = MountedImage::by_fuse(image, dir, settings_, channels_, *kept_, recorder);
  log::info("mounted {} ({}) in {} mode at {}{}{}", image->digest().to_string(), image->reference(),
            to_string(backing->mounted->mode()), dir.string(), backing->why.empty() ? "" : ": ", backing->why);
  return *state_.with([&](State& state) { return state.backings.emplace_back(std::move(backing)).get(); });
}

// Named by the image; where the same image is mounted by another index already, by that, too.
fs::path Daemon::free_folder(const ServedImage& image, std::string_view suffix) {
  const auto dir = options_.paths.images_dir() / (image.digest().hex() + std::string(suffix));
  if (find_backing(dir) == nullptr) return dir;
  return options_.paths.images_dir() /
         fmt::format("{}-{}{}", image.digest().hex(), image.index_digest().hex().substr(0, 16), suffix);
}

Daemon::Backing& Daemon::shared_backing(const std::shared_ptr<ServedImage>& image, MountMode mode) {
  auto* found = state_.with([&](State& state) -> Backing* {
    for (const auto& backing : state.backings) {
      // Left to us: kernel mode, or what we came to when that failed.
      const bool fits =
          backing->mounted->mode() == mode ||
          (mode == MountMode::kAuto && (backing->mounted->mode() == MountMode::kKernel || !backing->why.empty()));
      if (backing->shared && fits && backing->mounted->image().shows_the_same_as(*image)) return backing.get();
    }
    return nullptr;
  });
  if (found != nullptr) return *found;
  const auto dir = free_folder(*image, mode == MountMode::kFuse ? "-fuse" : "");
  auto backing = std::make_unique<Backing>();
  backing->shared = true;
  backing->folders = {dir};
  fs::create_directories(dir);
  return add_backing(std::move(backing), image, dir, mode, false);
}

// Files of its own even where they are all here, and caches of the kernel that nobody else has filled: else reads would
// go unseen.
Daemon::Backing& Daemon::recorded_backing(const std::shared_ptr<ServedImage>& image, MountMode mode) {
  std::string name;
  do name = fmt::format("{}-recording-{}", image->digest().hex(), ++recordings_);
  while (fs::exists(options_.paths.images_dir() / name));  // of an earlier daemon
  auto backing = std::make_unique<Backing>();
  backing->folders = {options_.paths.images_dir() / name, options_.paths.images_dir() / (name + "-blobs")};
  for (const auto& folder : backing->folders) fs::create_directories(folder);
  const auto dir = backing->folders.front();
  return add_backing(std::move(backing), image, dir, mode, true);
}

// The profile that comes with the index. Once for a mount: whoever joins it finds it under way or done.
void Daemon::start_prefetch(Backing& backing) {
  const auto& image = backing.mounted->image();
  const auto& profile = image.index().profile;
  if (backing.prefetch || profile.ranges.empty()) return;
  const PrefetchOptions options{.max_bytes_under_way = options_.streams.max_in_flight_bytes / 2};
  auto prefetch =
      std::make_unique<Prefetch>(plan_prefetch(image.distinct_layers(), profile, *image.cold(), options), options);
  state_.with([&](State&) { backing.prefetch = std::move(prefetch); });
}

MountResult Daemon::mount(const ImageSpec& spec, const fs::path& wanted_dir, MountMode mode, bool prefetch) {
  const Stopwatch watch;
  const auto dir = checked_mount_point(wanted_dir);
  const auto image = open(spec);
  const std::lock_guard guard(changing_);
  refuse_if_stopping();
  if (state_.with([&](State& state) { return state.user_mounts.contains(dir); }))
    fail<UsageError>("{}: varve has mounted something there already", dir.string());
  auto& backing =
      may_mount() ? shared_backing(image, mode) : add_backing(std::make_unique<Backing>(), image, dir, mode, false);
  // In the record before it is done: a daemon that comes after our death then knows that nobody was told of it.
  state_.with([&](State& state) {
    ++backing.users;
    state.user_mounts[dir] = {.image = backing.mounted.get(), .bound = backing.shared, .settled = !backing.shared};
  });
  write_record();
  if (backing.shared) {
    try {
      bind(backing.mounted->dir(), dir);
    } catch (...) {
      state_.with([&](State& state) { state.user_mounts.erase(dir); });
      drop_user(*backing.mounted, false);
      throw;
    }
    state_.with([&](State& state) { state.user_mounts[dir].settled = true; });
    write_record();
  }
  if (prefetch) start_prefetch(backing);
  return {.dir = dir,
          .mode = backing.mounted->mode(),
          .why = backing.why,
          .image = image->digest(),
          .seconds = watch.seconds(),
          .loaded_bytes = image->index().loaded_bytes};
}

void Daemon::unmount(const fs::path& wanted_dir, bool detach) {
  const std::lock_guard guard(changing_);
  // Not canonical(): that would look into a mount which may hang.
  const auto dir = wanted_dir.lexically_normal();
  const auto found = state_.with([&](State& state) -> std::optional<UserMount> {
    const auto at = state.user_mounts.find(dir);
    return at == state.user_mounts.end() ? std::nullopt : std::optional(at->second);
  });
  if (!found) fail<NotFound>("{}: varve has mounted nothing there", dir.string());
  try {
    if (found->bound)
      unmount_dir(dir, detach, false);
    else
      found->image->unmount(detach);
  } catch (const std::system_error& error) {
    explain_busy(dir, error);
  }
  state_.with([&](State& state) { state.user_mounts.erase(dir); });
  log::info("unmounted {}", dir.string());
  drop_user(*found->image, false);
}

AcquiredImage Daemon::acquire(const ImageSpec& spec, MountMode mode, const MountOptions& options, pid_t holder,
                              std::vector<Lease>& leases) {
  const Stopwatch watch;
  const auto image = open(spec);
  const std::lock_guard guard(changing_);
  refuse_if_stopping();
  auto& backing = options.record ? recorded_backing(image, mode) : shared_backing(image, mode);
  leases.push_back(add_lease(backing, find_holder(holder)));
  write_record();
  const auto stats = state_.with([&](State& state) { return stats_of(state, *backing.mounted); });
  if (options.prefetch && !options.record) start_prefetch(backing);
  return {.dir = backing.mounted->dir(),
          .mode = backing.mounted->mode(),
          .why = backing.why,
          .image = image->digest(),
          .config_json = std::string(as_text(image->image().config_json)),
          .seconds = watch.seconds(),
          .loaded_bytes = image->index().loaded_bytes,
          .stats = stats};
}

Daemon::Lease Daemon::add_lease(Backing& backing, std::optional<LeaseHolder> holder) {
  return state_.with([&](State& state) {
    ++backing.users;
    ++backing.leases;
    state.leases[++state.last_lease] = {.image = backing.mounted.get(), .holder = holder};
    return Lease(*this, *backing.mounted, state.last_lease);
  });
}

void Daemon::release(std::uint64_t lease) {
  const std::lock_guard guard(changing_);
  auto* image = state_.with([&](State& state) {
    const auto found = state.leases.extract(lease);
    return found.empty() ? nullptr : found.mapped().image;
  });
  if (image != nullptr) drop_user(*image, true);
}

// With the last user the mount goes, and with the last mount of an image its files.
void Daemon::drop_user(MountedImage& image, bool lease) {
  const auto last = state_.with([&](State& state) -> std::unique_ptr<Backing> {
    const auto found = std::find_if(state.backings.begin(), state.backings.end(),
                                    [&](const auto& backing) { return backing->mounted.get() == &image; });
    if (found == state.backings.end()) return nullptr;
    if (lease) --(*found)->leases;
    if (--(*found)->users > 0) return nullptr;
    auto backing = std::move(*found);
    state.backings.erase(found);
    return backing;
  });
  if (!last) return write_record();
  log::info("unmounting {}", last->mounted->dir().string());
  take_down(*last);
  write_record();
}

void Daemon::take_down(Backing& backing) {
  backing.prefetch.reset();
  backing.mounted.reset();
  std::error_code ignored;  // busy and detached: the folders are free all the same
  for (const auto& folder : backing.folders) fs::remove(folder, ignored);
}

ImageStats Daemon::stats_of(State& state, const MountedImage& image) const {
  auto stats = image.image().stats();
  for (const auto& backing : state.backings) {
    if (backing->prefetch && backing->mounted->image().digest() == stats.image)
      stats.prefetched_bytes += backing->prefetch->fetched_bytes();
  }
  return stats;
}

std::optional<ImageStats> Daemon::image_stats(const Digest& image) {
  return state_.with([&](State& state) -> std::optional<ImageStats> {
    for (const auto& backing : state.backings) {
      if (backing->mounted->image().digest() == image) return stats_of(state, *backing->mounted);
    }
    return std::nullopt;
  });
}

DaemonStatus Daemon::status() {
  DaemonStatus status{.daemon = {.pid = ::getpid(),
                                 .version = options_.version,
                                 .uptime_seconds = uptime_.seconds(),
                                 .root = options_.paths.root.string(),
                                 .keeper = std::string(options_.descriptors->kind()),
                                 .keeper_pid = options_.descriptors->pid()},
                      .mounts = {},
                      .store = {.bytes = streams_->store_bytes(), .max_bytes = options_.streams.store_limit.max_bytes}};
  state_.with([&](State& state) {
    const auto add = [&](const std::string& dir, const MountedImage& image, bool session) {
      status.mounts.push_back({.dir = dir,
                               .mode = image.mode(),
                               .session = session,
                               .stats = stats_of(state, image),
                               .fuse_requests = image.fuse_requests()});
    };
    for (const auto& [dir, mount] : state.user_mounts) {
      if (mount.settled) add(dir.string(), *mount.image, false);
    }
    for (const auto& backing : state.backings) {
      if (backing->leases > 0) add(backing->mounted->dir().string(), *backing->mounted, true);
    }
  });
  return status;
}

void Daemon::start_pull(const std::shared_ptr<ServedImage>& image, bool cold) {
  const std::lock_guard guard(changing_);
  refuse_if_stopping();
  const bool running = state_.with([&](State& state) {
    std::erase_if(state.pulls, [](const auto& pull) { return pull.second->finished.load(); });
    return state.pulls.contains({image->index_digest(), cold});
  });
  if (running) return;
  const auto job = std::make_shared<PullJob>();
  job->image = image;
  job->thread = std::jthread([raw = job.get(), layers = layers_to_pull(*image, cold)] {
    try {
      pull_layers(layers, {}, [raw] { return raw->stop.load(); });
      log::info("pulled {}", raw->image->digest().to_string());
    } catch (const std::exception& error) {
      log::error("pull of {}: {}", raw->image->digest().to_string(), error.what());
    }
    raw->finished = true;
  });
  state_.with([&](State& state) { state.pulls[{image->index_digest(), cold}] = job; });
}

PullResult Daemon::pull(const ImageSpec& spec, bool wait, bool cold, const ProgressCallback& progress,
                        const std::function<bool()>& stop_wanted) {
  const auto image = open(spec, index::IndexPlace::kRepository);
  const auto before = image->stats();
  if (wait)
    pull_layers(layers_to_pull(*image, cold), progress, [&] { return stopping_ || stop_wanted(); });
  else
    start_pull(image, cold);
  return pull_result(*image, before, wait);
}

std::vector<LayerRanges> Daemon::present(const ServedImage& image) {
  std::vector<LayerRanges> here;
  for (const auto& layer : image.distinct_layers()) {
    auto& ranges = here.emplace_back(LayerRanges{.layer = layer->map().layer_digest, .ranges = {}}).ranges;
    for (const auto& span : layer->map().spans) {
      if (!layer->is_readable(span.stream_range)) continue;
      if (!ranges.empty() && ranges.back().end() == span.stream_range.offset)
        ranges.back().length += span.stream_range.length;
      else
        ranges.push_back(span.stream_range);
    }
  }
  return here;
}

PullResult Daemon::fetch(const ServedImage& image, const std::vector<LayerRanges>& wanted,
                         const ProgressCallback& progress, const std::function<bool()>& stop_wanted) {
  std::vector<PulledRanges> layers;
  for (const auto& [digest, ranges] : wanted) {
    const auto& all = image.distinct_layers();
    const auto layer = std::find_if(all.begin(), all.end(),
                                    [&digest = digest](const auto& one) { return one->map().layer_digest == digest; });
    if (layer == all.end())
      fail<UsageError>("fetch: layer {} is none of image {}", digest.to_string(), image.digest().to_string());
    for (const auto& range : ranges) {
      if (range.length == 0 || !range.fits_in((*layer)->map().stream_bytes))
        fail<UsageError>("fetch: layer {} has no {} bytes at {}", digest.to_string(), range.length, range.offset);
    }
    layers.push_back({.stream = *layer, .ranges = ranges});
  }
  const auto before = image.stats();
  pull_ranges(layers, progress, [&] { return stopping_ || stop_wanted(); });
  return pull_result(image, before, true);
}

// A complete layer may be mounted straight from its store file, where a hole would read as zeros: what verify dropped
// of a layer in use is fetched at once.
void Daemon::repair_if_mounted(const std::shared_ptr<LayerStream>& stream, const std::vector<ByteRange>& bad) {
  const bool mounted = state_.with([&](State& state) {
    return std::any_of(state.backings.begin(), state.backings.end(), [&](const auto& backing) {
      const auto& layers = backing->mounted->image().layers();
      return std::find(layers.begin(), layers.end(), stream) != layers.end();
    });
  });
  if (!mounted) return;
  for (const auto& range : bad) {
    std::promise<void> fetched;
    stream->ensure(range, Priority::kReader, [&](std::exception_ptr error) {
      if (error)
        fetched.set_exception(error);
      else
        fetched.set_value();
    });
    try {
      fetched.get_future().get();
    } catch (const std::exception& error) {
      log::error("verify: a damaged span of a mounted layer could not be fetched anew: {}", error.what());
    }
  }
}

VerifyResult Daemon::verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams,
                                    const ProgressCallback& progress, const std::function<bool()>& stop_wanted) {
  std::uint64_t expected = 0;
  for (const auto& stream : streams) expected += stream->stats().present_bytes;
  VerifyResult result;
  for (const auto& stream : streams) {
    if (stopping_ || stop_wanted()) throw Cancelled("verify: stopped");
    if (progress) progress(result.checked_bytes, expected);
    const auto verified = stream->verify();
    result.checked_bytes += verified.checked_bytes;
    const auto& layer = stream->map().layer_digest;
    for (const auto& bad : verified.bad) {
      log::error("verify: layer {} at {}+{} is damaged in the store; dropped, it will be fetched anew",
                 layer.to_string(), bad.offset, bad.length);
      result.bad.push_back({.layer = layer, .stream_offset = bad.offset, .length = bad.length});
    }
    repair_if_mounted(stream, verified.bad);
  }
  return result;
}

VerifyResult Daemon::verify(const ImageSpec& spec, bool deep, const ProgressCallback& progress,
                            const std::function<bool()>& stop_wanted) {
  const auto image = open(spec);
  auto result = verify_streams(image->distinct_layers(), progress, stop_wanted);
  if (!deep) return result;
  auto proof = prove(*image, *local_, true, [&] {
    if (stopping_ || stop_wanted()) throw Cancelled("verify: stopped");
  });
  for (auto& layer : proof.layers)
    result.layers.push_back({.layer = layer.layer,
                             .complete = layer.complete,
                             .proved = layer.proved,
                             .refuted = std::move(layer.refuted)});
  result.tree_proved = proof.tree_proved;
  result.tree_refuted = std::move(proof.tree_refuted);
  return result;
}

// A layer of the store whose image is not mounted is opened by its map alone: digests need no registry.
std::vector<std::shared_ptr<LayerStream>> Daemon::stored_streams() {
  std::map<StoredLayer, std::shared_ptr<LayerStream>> open_streams;
  state_.with([&](State& state) {
    for (const auto& backing : state.backings) {
      const auto& image = backing->mounted->image();
      for (std::size_t i = 0; i < image.layers().size(); ++i)
        open_streams[{.layer = image.layers()[i]->map().layer_digest,
                      .map = image.index().blobs.layers.at(i).map.digest}] = image.layers()[i];
    }
  });
  std::vector<std::shared_ptr<LayerStream>> streams;
  for (const auto& stored : streams_->stored_layers()) {
    const auto& digest = stored.layer;
    if (const auto found = open_streams.find(stored); found != open_streams.end()) {
      streams.push_back(found->second);
      continue;
    }
    auto blobs = known_layers_.find(digest, stored.map);
    if (!blobs) blobs = local_->find_layer_index(digest);
    if (blobs && stored.map && blobs->map.digest != *stored.map) blobs.reset();
    if (!blobs) {
      log::warn("verify: layer {} is in the store, but its index is not on this machine; left alone",
                digest.to_string());
      continue;
    }
    const auto bytes = oci::read_whole_blob(local_->repository(), blobs->map, kMaxMapBytes);
    auto map =
        std::make_shared<const index::LayerMap>(index::LayerMap::decode(bytes, "layer map of " + digest.to_string()));
    oci::Descriptor layer;
    layer.digest = digest;
    layer.size = map->compressed_bytes;
    streams.push_back(streams_->stream(std::move(map), layer, nullptr, *blobs, nullptr));
  }
  return streams;
}

VerifyResult Daemon::verify_store(const ProgressCallback& progress, const std::function<bool()>& stop_wanted) {
  return verify_streams(stored_streams(), progress, stop_wanted);
}

bool Daemon::idle() {
  return state_.with([](State& state) {
    return state.backings.empty() && std::all_of(state.pulls.begin(), state.pulls.end(),
                                                 [](const auto& pull) { return pull.second->finished.load(); });
  });
}

void Daemon::unmount_everything() {
  const auto user_mounts = state_.with([](State& state) {
    state.leases.clear();  // their images go
    return std::exchange(state.user_mounts, {});
  });
  for (const auto& [dir, mount] : user_mounts) {
    if (!mount.bound) continue;
    try {
      unmount_dir(dir, true, false);
    } catch (const std::exception& error) {
      log::error("{}", error.what());
    }
  }
  const auto backings = state_.with([](State& state) { return std::exchange(state.backings, {}); });
  for (const auto& backing : backings) take_down(*backing);
}

void Daemon::stop() {
  if (stopping_.exchange(true)) return;
  holders_.reset();
  proofs_.stop();
  {
    const std::lock_guard guard(changing_);
    unmount_everything();
  }
  const auto pulls = state_.with([](State& state) { return std::exchange(state.pulls, {}); });
  for (const auto& [digest, pull] : pulls) pull->stop = true;
  streams_->stop();      // what still waits fails now
  channels_.stop_all();  // nobody asks any more
  options_.descriptors->end();
  std::error_code ignored;
  fs::remove(options_.paths.handover_file(), ignored);
}

}  // namespace varve::fuse
