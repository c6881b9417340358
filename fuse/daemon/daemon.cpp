#include "fuse/daemon/daemon.h"

#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "core/base/errors.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "core/index/forget_image.h"
#include "fuse/control/control_protocol.h"
#include "fuse/daemon/fill_choice.h"
#include "fuse/daemon/kept_images.h"
#include "fuse/daemon/pull.h"
#include "fuse/daemon/stale_mounts.h"
#include "fuse/daemon/verify_streams.h"
#include "fuse/mount/erofs_mount.h"
#include "fuse/mount/fuse_mount.h"
#include "fuse/mount/mount_point.h"
#include "fuse/stream/stored_streams.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLastReads{3};  // what was read ahead for a mount may still arrive when that has gone

MountSettings settings_of(const DaemonOptions& options) {
  return {
      .source = mount_source(options.paths), .threads = options.fuse_threads, .read_ahead_kb = options.read_ahead_kb};
}

fs::path resolved(const fs::path& dir) {
  std::error_code error;
  auto path = fs::canonical(dir, error);
  if (error) throw std::system_error(error, fmt::format("mount at {}", dir.string()));
  return path;
}

PullResult pull_result(const ServedImage& image, const ImageStats& before, bool finished) {
  const auto after = image.stats();
  return {.image = image.digest(),
          .fetched_bytes = after.fetched_bytes - before.fetched_bytes,
          .copied_bytes = after.copied_bytes - before.copied_bytes,
          .present_bytes = after.present_bytes,
          .image_stream_bytes = after.image_stream_bytes,
          .cold_bytes = after.cold_bytes,
          .cold_present_bytes = after.cold_present_bytes,
          .finished = finished};
}

}  // namespace

Daemon::Daemon(DaemonOptions options)
    : options_(std::move(options)),
      settings_(settings_of(options_)),
      local_(std::make_shared<index::LocalIndex>(options_.paths.root, options_.trust)),
      opened_(options_.paths.root),
      streams_(LayerStreams::open(options_.paths.store_dir(), options_.streams)),
      kept_(std::make_shared<KeptConnections>(options_.descriptors)),
      stale_pages_(options_.paths.stale_pages_file()),
      proofs_(local_, [this] { return streams_->busy(); }),
      contents_(local_, opened_, *streams_, options_.paths.root),
      leases_([this](const fs::path& mount) { end_use_of_lease(mount); }) {
  fs::create_directories(options_.paths.images_dir());
  take_over();
  look_ = std::make_unique<Ticker>(kIdleLook, [this] {
    look_at_idle();
    look_at_reads();
    streams_->close_unused();  // what somebody else held for a while when its mount ended
  });
}

Daemon::~Daemon() { stop(); }

void Daemon::refuse_if_stopping() const {
  if (draining_)
    throw TemporaryError("the daemon was asked to end, and does when what it serves is no longer used; try again then");
  if (stopping_.cancelled()) throw TemporaryError("the daemon is shutting down");
}

// What is open already needs no loading if it is the very same, for the same reason: it was judged as any other.
Daemon::Opened Daemon::serve(const ImageSpec& spec, oci::Image image, index::ChosenIndex chosen) {
  const auto& index = chosen.index;
  const auto is_it = [&, asked = nlohmann::json(spec)](const ImageMount& mount) {
    const auto& open = mount.mounted->image();
    return open.tree_layers() == 0 && open.digest() == image.digest() &&
           open.index_digest() == index.found.blobs.manifest.digest &&
           open.index().judgement.vouched == index.judgement.vouched && nlohmann::json(open.spec()) == asked;
  };
  if (auto open = images_.find_image(is_it)) return {.image = std::move(open)};
  auto served = ServedImage::open(spec, std::move(image), std::move(chosen), local_, *streams_);
  const auto loaded_bytes = served->index().loaded_bytes;
  // An image that is mounted is open already: its counters go on. Not by another index, though: that one was not asked
  // for, and may not be trusted by who asks. Nor one that nobody uses and that lacks what this index notes.
  const auto shows_it = [&](const ImageMount& mount) {
    const auto& open = mount.mounted->image();
    return open.shows_the_same_as(*served) && (!mount.idle_since || open.index_digest() == served->index_digest());
  };
  if (auto same = images_.find_image(shows_it)) {
    same->take_marks_of(*served);
    served = std::move(same);
  }
  return {.image = std::move(served), .loaded_bytes = loaded_bytes};
}

// A digest leaves no doubt what is meant: what is kept here under it, with its index, needs nobody's word. So a machine
// starts what it has though its registry is away, or slow to say so.
std::optional<Daemon::Opened> Daemon::open_named_by_digest(const ImageSpec& spec) {
  auto image = find_image_kept_by_digest(local_, spec);
  if (!image) return std::nullopt;
  std::vector<std::string> refusals;
  if (!local_->find_trusted(*image, refusals)) return std::nullopt;
  try {
    auto chosen = index::choose_index(*local_, *image, index::IndexPlace::kHere);
    auto opened = serve(spec, std::move(*image), std::move(chosen));
    log::info("{} is kept here: its registry was not asked for it", spec.reference);
    return opened;
  } catch (const TemporaryError& error) {
    log::warn("{} is kept here, but not whole: {}", spec.reference, error.what());
    return std::nullopt;
  }
}

// A registry that is away says nothing against what is here. One that answers, even with a refusal, is believed.
Daemon::Opened Daemon::open_now_or_as_kept(const ImageSpec& asked, index::IndexPlace place) {
  auto spec = asked;
  spec.registry.credential_providers = options_.credential_providers;
  if (place == index::IndexPlace::kHere)
    if (auto opened = open_named_by_digest(spec)) return std::move(*opened);
  try {
    std::optional<index::ChosenIndex> chosen;
    auto image = oci::open_image(
        oci::ImageRequest::parse(spec.reference, spec.platform, spec.registry),
        {.kept = &local_->repository(),
         .meanwhile = [&](const oci::Image& known) { chosen = index::choose_index(*local_, known, place); },
         .reads_follow = !was_opened(*local_, spec)});
    const auto now = image;
    auto opened = serve(spec, std::move(image), std::move(*chosen));
    keep_image(*local_, spec, now);
    return opened;
  } catch (const TemporaryError& error) {
    auto image = place == index::IndexPlace::kHere ? find_kept_image(local_, spec) : std::nullopt;
    if (!image) throw;
    log::warn("{}; {} is taken to be what it was when it was last opened, {}", error.what(), spec.reference,
              image->digest().to_string());
    auto chosen = index::choose_index(*local_, *image, place);
    return serve(spec, std::move(*image), std::move(chosen));
  }
}

Daemon::Opened Daemon::open(const ImageSpec& asked, index::IndexPlace place) try {
  refuse_if_stopping();
  const auto spec = watched(asked);
  auto opened = open_now_or_as_kept(spec, place);
  opened_.note(spec, opened.image->digest());
  proofs_.watch(opened.image);
  return opened;
} catch (const trust::Untrusted&) {
  if (options_.metrics) options_.metrics->note_untrusted();
  throw;
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

ImageMount& Daemon::add_mount(std::unique_ptr<ImageMount> mount, const std::shared_ptr<ServedImage>& image,
                              MountMode mode, const std::shared_ptr<ReadRecorder>& recorder) {
  for (const auto& folder : mount->folders) fs::create_directories(folder);
  if (mode != MountMode::kFuse) {
    auto why = why_no_kernel_mode();
    if (why.empty()) {
      try {
        auto blobs = recorder ? std::make_shared<BlobMount>(mount->folders.back(), settings_, channels_, *kept_)
                              : shared_blobs();
        mount->mounted = MountedImage::by_kernel(image, mount->dir, std::move(blobs), settings_, *kept_, recorder);
      } catch (const std::system_error& error) {
        if (!is_lack_of_kernel(error.code().value())) throw;
        why = why_no_erofs(error, image->index().tree_file);
      }
    }
    if (!mount->mounted && mode == MountMode::kKernel) fail<Unsupported>("{}", why);
    if (!mount->mounted) mount->why = why + "; using fuse mode";
  }
  const auto digest = image->digest().to_string();
  const log::Field about_digest("IMAGE", digest), about_image("IMAGE", image->reference());
  if (!mount->mounted)
    mount->mounted = MountedImage::by_fuse(image, mount->dir, settings_, channels_, *kept_, recorder);
  log::info("mounted {} ({}) in {} mode at {}{}{}", digest, image->reference(), to_string(mount->mounted->mode()),
            mount->dir.string(), mount->why.empty() ? "" : ": ", mount->why);
  mount->entry = find_own_mount(read_mount_table(), options_.paths, mount->dir);
  return images_.add(std::move(mount));
}

// Named by the image; where the same image is mounted by another index already, by that, too.
fs::path Daemon::free_folder(const ServedImage& image, std::string_view suffix) {
  const auto dir = options_.paths.images_dir() / (image.digest().hex() + std::string(suffix));
  if (!images_.is_taken(dir)) return dir;
  return options_.paths.images_dir() /
         fmt::format("{}-{}{}", image.digest().hex(), image.index_digest().hex().substr(0, 16), suffix);
}

ImageMount& Daemon::shared_mount(const std::shared_ptr<ServedImage>& image, MountMode mode) {
  auto* found = images_.find_if([&](const ImageMount& mount) {
    // Left to us: kernel mode, or what we came to when that failed.
    const bool fits = mount.mounted->mode() == mode ||
                      (mode == MountMode::kAuto && (mount.mounted->mode() == MountMode::kKernel || !mount.why.empty()));
    return mount.shared && fits && mount.mounted->image().shows_the_same_as(*image);
  });
  if (found != nullptr && found->idle_since && found->mounted->image().index_digest() != image->index_digest()) {
    end_if_idle(found->dir, "another index of the image notes more");
    found = nullptr;
  }
  if (found != nullptr) {
    images_.set_idle(*found, std::nullopt);
    return *found;
  }
  auto mount = std::make_unique<ImageMount>();
  const auto part = image->tree_layers() == 0 ? std::string() : fmt::format("-first-{}", image->tree_layers());
  mount->dir = free_folder(*image, part + (mode == MountMode::kFuse ? "-fuse" : ""));
  mount->shared = true;
  mount->folders = {mount->dir};
  return add_mount(std::move(mount), image, mode);
}

// Files of its own even where they are all here, and caches of the kernel that nobody else has filled: else reads would
// go unseen.
ImageMount& Daemon::recorded_mount(const std::shared_ptr<ServedImage>& image, MountMode mode) {
  std::string name;
  do name = fmt::format("{}-recording-{}", image->digest().hex(), ++recordings_);
  while (fs::exists(options_.paths.images_dir() / name));  // of an earlier daemon
  auto mount = std::make_unique<ImageMount>();
  mount->dir = options_.paths.images_dir() / name;
  mount->folders = {mount->dir, options_.paths.images_dir() / (name + "-blobs")};
  return add_mount(std::move(mount), image, mode, std::make_shared<ReadRecorder>());
}

// By what is loaded, and by the packs or the profile that come with the index. Once for a mount: whoever joins it finds
// it under way or done.
void Daemon::start_prefetch(ImageMount& mount) {
  const auto& image = mount.mounted->image();
  image.run_ahead_of_loaders();
  if (image.packs()) {
    image.use_packs();
    return mount.mounted->bring_start_pages();
  }
  const auto& profile = image.index().profile;
  if (mount.prefetch || profile.ranges.empty()) return;
  const PrefetchOptions options{.max_bytes_under_way = options_.streams.max_in_flight_bytes / 2};
  images_.set_prefetch(mount, std::make_unique<Prefetch>(
                                  plan_prefetch(image.distinct_layers(), profile, *image.cold(), options), options));
}

// What takes as long as the mount, while we mount: start_ahead() will begin with it.
void Daemon::get_bearings(const ServedImage& image, const MountOptions& options) {
  if (options.prefetch && !options.record) image.run_ahead_of_loaders();
}

void Daemon::start_ahead(ImageMount& mount, const MountOptions& options) {
  if (options.record) return;
  if (options.prefetch) start_prefetch(mount);
  if (options.fill || (options.prefetch && options_.fill))
    start_fill(mount);
  else if (options.prefetch && !mount.missing_at_first)
    images_.set_missing_at_first(mount, missing_bytes(mount.mounted->image().stats()));
  if (!mount.fill) contents_.learn_later(mount.mounted->served(), ContentSources::By::kSeeds);
  write_record();
}

void Daemon::refuse_if_mounted(const fs::path& dir) {
  const auto name = images_.find_name(dir);
  if (!name) return;
  const auto* mount = images_.find(name->mount);
  fail<UsageError>("{}: {} is mounted there already; `varve unmount {}` ends that mount", dir.string(),
                   mount == nullptr ? "an image" : mount->mounted->image().reference(), dir.string());
}

MountResult Daemon::mount(const ImageSpec& spec, const fs::path& wanted_dir, MountMode mode,
                          const MountOptions& options) {
  const Stopwatch watch;
  const auto dir = resolved(wanted_dir);
  notice_unmounts();
  refuse_if_mounted(dir);
  const MountPoint place(dir);
  const auto [image, loaded_bytes] = open(spec);
  get_bearings(*image, options);
  if (image->index().blobs.seeds) contents_.learn_later(image, ContentSources::By::kSeeds);  // for what is read first
  Change change(*this);
  change.wait_until_unmounted(*image);
  refuse_if_stopping();
  drop_vanished_mounts();
  refuse_if_mounted(dir);
  const auto own_mount = [&, &image = image]() -> ImageMount& {
    auto own = std::make_unique<ImageMount>();
    own->dir = dir;
    return add_mount(std::move(own), image, mode);
  };
  auto& mount = may_mount() ? shared_mount(image, mode) : own_mount();
  // In the record before it is done: a daemon that comes after our death then knows that nobody was told of it.
  images_.set_name({.dir = dir, .mount = mount.dir, .bound = mount.shared, .settled = !mount.shared});
  write_record();
  if (mount.shared) {
    try {
      place.bind(mount.dir);
    } catch (...) {
      images_.remove_name(dir);
      end_use(mount.dir, Afterwards::kKeep);
      throw;
    }
    images_.set_name({.dir = dir, .mount = mount.dir, .bound = true, .settled = true});
    write_record();
  }
  note_ready(*image, watch.seconds());
  start_ahead(mount, options);
  return {.dir = dir,
          .mode = mount.mounted->mode(),
          .why = mount.why,
          .image = image->digest(),
          .seconds = watch.seconds(),
          .loaded_bytes = loaded_bytes};
}

AcquiredImage Daemon::acquire(const ImageSpec& spec, MountMode mode, const MountOptions& options, pid_t holder,
                              std::vector<LeaseTable::Lease>& leases) {
  const Stopwatch watch;
  const auto [image, loaded_bytes] = open(spec);
  get_bearings(*image, options);
  if (image->index().blobs.seeds && !options.record) contents_.learn_later(image, ContentSources::By::kSeeds);
  Change change(*this);
  change.wait_until_unmounted(*image);
  refuse_if_stopping();
  drop_vanished_mounts();
  auto& mount = options.record ? recorded_mount(image, mode) : shared_mount(image, mode);
  leases.push_back(leases_.add(mount.dir, find_process(holder)));
  write_record();
  const auto stats = stats_of(mount.mounted->image());
  note_ready(*image, watch.seconds());
  start_ahead(mount, options);
  return {.dir = mount.dir,
          .mode = mount.mounted->mode(),
          .why = mount.why,
          .image = image->digest(),
          .config_json = std::string(as_text(image->image().config_json)),
          .seconds = watch.seconds(),
          .loaded_bytes = loaded_bytes,
          .stats = stats};
}

std::shared_ptr<ReadRecorder> Daemon::recorder_of(const LeaseTable::Lease& lease) {
  const auto* mount = images_.find(lease.mount());  // it is there as long as its lease
  return mount == nullptr ? nullptr : mount->mounted->recorder();
}

void Daemon::end_use_of_lease(const fs::path& mount) {
  const Change change(*this);
  end_use(mount, Afterwards::kKeep);
}

// With the last user the mount goes, at once or after a while, and with the last mount of an image its files.
void Daemon::end_use(fs::path dir, Afterwards afterwards) {
  auto* mount = images_.find(dir);
  if (mount == nullptr) return;
  if (!images_.has_name(dir) && !leases_.any(dir)) {
    opened_.note(mount->mounted->image().spec(), mount->mounted->image().digest());
    if (afterwards != Afterwards::kUnmount && may_keep(*mount)) {
      begin_idle(*mount, options_.keep_mounted);
    } else if (afterwards == Afterwards::kUnmountSoon) {
      begin_idle(*mount, std::chrono::seconds(0));
    } else {
      end_fill(*mount);
      log::info("unmounting {}", dir.string());
      end_mount(dir);
    }
  }
  write_record();
}

ImageStats Daemon::stats_of(const ServedImage& image) {
  auto stats = image.stats();
  stats.prefetched_bytes = images_.prefetched_bytes(stats.image);
  return stats;
}

std::optional<ImageStats> Daemon::image_stats(const Digest& image) {
  const auto found =
      images_.find_image([&](const ImageMount& mount) { return mount.mounted->image().digest() == image; });
  return found ? std::optional(stats_of(*found)) : std::nullopt;
}

DaemonStatus Daemon::status() {
  DaemonStatus status{.daemon = {.pid = ::getpid(),
                                 .version = options_.version,
                                 .uptime_seconds = uptime_.seconds(),
                                 .root = options_.paths.root.string(),
                                 .keeper = std::string(options_.descriptors->kind()),
                                 .keeper_pid = options_.descriptors->pid()},
                      .mounts = {},
                      .idle = {},
                      .pulls = pulls_.list(),
                      .links = {},
                      .store = {.bytes = streams_->store_bytes(), .max_bytes = options_.streams.store_limit.max_bytes}};
  for (const auto& [host, speed] : streams_->links())
    status.links.push_back(
        {.host = host, .answer_seconds = speed.answer_seconds, .bytes_per_second = speed.bytes_per_second});
  const auto status_of = [](const fs::path& dir, const MountedImage& image, bool session) {
    return MountStatus{.dir = dir.string(),
                       .mode = image.mode(),
                       .session = session,
                       .holders = {},
                       .held_by = {},
                       .tree_layers = image.image().tree_layers(),
                       .stats = image.image().stats(),
                       .fuse_requests = image.fuse_requests()};
  };
  const auto now = std::chrono::steady_clock::now();
  const auto names = images_.names();
  const auto table = read_mount_table();  // somebody may have unmounted one a moment ago
  std::vector<MountStatus> sessions;
  images_.for_each([&](const ImageMount& mount) {
    for (const auto& name : names)
      if (name.settled && name.mount == mount.dir && mount.is_at(table, name.dir))
        status.mounts.push_back(status_of(name.dir, *mount.mounted, false));
    if (mount.idle_since) {
      const auto& image = mount.mounted->image();
      status.idle.push_back(
          {.dir = mount.dir.string(),
           .mode = mount.mounted->mode(),
           .image = image.digest(),
           .reference = image.reference(),
           // It may have begun since we looked at the clock.
           .idle_seconds =
               std::chrono::duration<double>(std::max(now, *mount.idle_since) - *mount.idle_since).count()});
    }
    const auto holders = leases_.holders(mount.dir);
    auto held_by = leases_.held_by(mount.dir);
    if (holders.empty() && held_by.empty()) return;
    auto& session = sessions.emplace_back(status_of(mount.dir, *mount.mounted, true));
    session.held_by = std::move(held_by);
    for (const auto& holder : holders)
      if (holder) session.holders.push_back(holder->pid);
  });
  std::ranges::sort(status.mounts, {}, [](const MountStatus& mount) { return fs::path(mount.dir); });
  std::ranges::move(sessions, std::back_inserter(status.mounts));
  for (auto& mount : status.mounts) mount.stats.prefetched_bytes = images_.prefetched_bytes(mount.stats.image);
  return status;
}

PullResult Daemon::pull(const ImageSpec& spec, bool wait, bool cold, const Work& work) {
  const auto image = open(spec, index::IndexPlace::kRepository).image;
  const auto before = image->stats();
  contents_.learn(image, ContentSources::By::kEntries, work.cancel);
  const BackgroundPulls::What what{.index = image->index_digest(), .cold = cold};
  const BackgroundPulls::Name name{.image = image->digest(), .reference = spec.reference};
  if (wait)
    pulls_.run(what, name, layers_to_pull(*image, cold), work);
  else
    pulls_.start(what, name, layers_to_pull(*image, cold));
  return pull_result(*image, before, wait);
}

std::vector<LayerRanges> Daemon::present(const ServedImage& image) {
  std::vector<LayerRanges> here;
  for (const auto& layer : image.streams_with_packs()) {
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

PullResult Daemon::fetch(const std::shared_ptr<ServedImage>& served, const std::vector<LayerRanges>& wanted,
                         const Work& work) {
  const auto& image = *served;
  std::vector<PulledRanges> layers;
  std::vector<std::shared_ptr<LayerStream>> streams;
  for (const auto& [digest, ranges] : wanted) {
    const auto stream = image.stream_to_fetch(digest);
    if (!stream)
      fail<UsageError>("fetch: layer {} is none of image {}", digest.to_string(), image.digest().to_string());
    for (const auto& range : ranges) {
      if (range.length == 0 || !range.fits_in(stream->map().stream_bytes))
        fail<UsageError>("fetch: layer {} has no {} bytes at {}", digest.to_string(), range.length, range.offset);
    }
    layers.push_back({.stream = stream, .ranges = ranges});
    if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
  }
  contents_.learn(served, ContentSources::By::kEntries, work.cancel);
  const auto before = image.stats();
  const auto fetched_before = fetched_bytes_of(streams);
  pull_ranges(layers, work);
  auto result = pull_result(image, before, true);
  result.fetched_bytes = fetched_bytes_of(streams) - fetched_before;  // also of packs that no start has asked for
  return result;
}

std::vector<MountedServed> Daemon::mounted_images() {
  const auto table = read_mount_table();
  std::vector<MountedServed> mounted;
  images_.for_each([&](const ImageMount& mount) {
    if (mount.is_at(table, mount.dir)) mounted.push_back({.image = mount.mounted->served(), .dir = mount.dir});
  });
  return mounted;
}

VerifyResult Daemon::verify_streams(const std::vector<std::shared_ptr<LayerStream>>& streams, const Work& work) {
  const auto note_damaged = [this](const LayerStream& stream, const std::vector<ByteRange>& bad) {
    const auto mounts = mounted_images();
    // Pages that came from a pack, or as a seed, are pages of the layers where that belongs, and are compared with
    // them.
    const auto note_in_layers = [&](const std::vector<std::pair<LayerStream*, ByteRange>>& places) {
      for (const auto& [layer, range] : places) {
        stale_pages_.note(*layer, {range}, mounts);
        fetch_anew(*layer, range);
      }
      return !places.empty();
    };
    bool is_used_pack = false;
    for (const auto& mount : mounts)
      if (const auto packs = mount.image->packs())
        is_used_pack = note_in_layers(packs->places_of(stream, bad)) || is_used_pack;
    if (is_used_pack) return true;
    for (const auto& mount : mounts) note_in_layers(mount.image->seeds().places_of(stream, bad));
    stale_pages_.note(stream, bad, mounts);
    return std::ranges::any_of(mounts, [&](const MountedServed& mount) {
      return std::ranges::any_of(mount.image->layers(), [&](const auto& layer) { return layer.get() == &stream; });
    });
  };
  auto result = fuse::verify_streams(streams, note_damaged, work);
  result.stale = stale_pages_.drop(streams, mounted_images(), work.cancel);
  return result;
}

VerifyResult Daemon::verify(const ImageSpec& spec, bool deep, const Work& work) {
  const auto image = open(spec).image;
  auto streams = image->distinct_layers();
  if (image->packs()) std::ranges::move(image->packs()->streams(), std::back_inserter(streams));
  std::ranges::move(image->seeds().sources(), std::back_inserter(streams));
  const auto before = image->stats();
  auto result = verify_streams(streams, work);
  result.absent_bytes = before.image_stream_bytes - std::min(before.image_stream_bytes, before.present_bytes);
  if (!deep) return result;
  auto proof = prove(*image, *local_, true, work.cancel);
  for (auto& layer : proof.layers)
    result.layers.push_back({.layer = layer.layer,
                             .complete = layer.complete,
                             .proved = layer.proved,
                             .refuted = std::move(layer.refuted)});
  result.tree_proved = proof.tree_proved;
  result.tree_refuted = std::move(proof.tree_refuted);
  return result;
}

VerifyResult Daemon::verify_store(const Work& work) {
  return verify_streams(open_stored_streams(*streams_, *local_, options_.paths.root), work);
}

// What the machine keeps of it beside the store.
void Daemon::forget_index(const Digest& image) {
  std::set<Digest> staying;
  images_.for_each([&](const ImageMount& mount) { staying.insert(mount.mounted->image().index_digest()); });
  for (const auto& stored : streams_->stored_layers()) {
    if (stored.map) staying.insert(*stored.map);
    if (stored.entries) staying.insert(*stored.entries);
  }
  try {
    const auto bytes = index::forget_image(*local_, image, staying);
    log::info("removed what was kept of {} beside the store: {} bytes", image.to_string(), bytes);
  } catch (const std::exception& error) {
    log::warn("the index of {} is left: {}", image.to_string(), error.what());
  }
}

// Throws if somebody uses it. True if it was mounted for nobody.
bool Daemon::end_unused_mounts(const Digest& image) {
  const auto names = images_.names();
  std::vector<std::string> places;
  std::vector<fs::path> idle;
  images_.for_each([&](const ImageMount& mount) {
    if (mount.mounted->image().digest() != image) return;
    if (mount.idle_since) idle.push_back(mount.dir);
    for (const auto& name : names)
      if (name.mount == mount.dir) places.push_back("at " + name.dir.string());
    for (const auto& name : leases_.held_by(mount.dir)) places.push_back(fmt::format("for {:?}, which holds it", name));
    if (!leases_.holders(mount.dir).empty()) places.emplace_back("in a session");
  });
  if (!places.empty()) fail<Error>("it is mounted {}: end that first", joined(places));
  for (const auto& mount : idle) end_if_idle(mount, "its image is removed");
  return !idle.empty();
}

RemovedImage Daemon::remove_image(const Digest& image) {
  std::chrono::seconds last_reads{0};
  for (; true; last_reads = kLastReads) {
    Change change(*this);
    change.wait_until_unmounted([&](const ServedImage& ending) { return ending.digest() == image; });
    refuse_if_stopping();
    if (!end_unused_mounts(image)) return remove_unmounted(image, last_reads);
  }
}

// While nothing is mounted. What is only being opened has its streams open, which stay.
RemovedImage Daemon::remove_unmounted(const Digest& image, std::chrono::seconds last_reads) {
  RemovedImage removed;
  local_->wait_until_listed();  // packs are told by what is
  const auto patience = std::chrono::steady_clock::now() + last_reads;
  for (const auto& layer : layers_of_its_own(opened_, *local_, image)) {
    auto freed = streams_->remove(layer);
    for (; !freed && std::chrono::steady_clock::now() < patience; freed = streams_->remove(layer))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (freed) {
      removed.freed_bytes += *freed;
      ++removed.removed_layers;
    } else {
      ++removed.busy_layers;
    }
  }
  // A layer that is left goes with the next call: it is told from others by the image's name.
  if (removed.busy_layers == 0) {
    local_->wait_until_listed();
    opened_.forget(image);
    forget_index(image);
  }
  log::info("removed {} from the store: {} bytes", image.to_string(), removed.freed_bytes);
  return removed;
}

bool Daemon::idle() {
  return pulls_.idle() && images_.find_if([](const ImageMount& mount) { return !mount.idle_since; }) == nullptr;
}

}  // namespace varve::fuse
