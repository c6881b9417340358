#include "fuse/daemon/daemon_metrics.h"

#include <algorithm>

#include "fuse/daemon/daemon.h"

namespace varve::fuse {
namespace {

constexpr std::size_t kMaxImages = 60;  // two series each, of as many numbers as there are bounds
constexpr std::size_t kMaxHosts = 30;

class CountedSources final : public oci::SourceWatch {
 public:
  explicit CountedSources(std::shared_ptr<MetricRegistry> registry)
      : registry_(std::move(registry)),
        errors_(registry_->counter({.name = "varve_source_errors_total",
                                    .help = "Requests that a registry or mirror failed, absent blobs not counted.",
                                    .labels = {"host", "kind"},
                                    .max_series = kMaxHosts})) {}

  void failed(const std::string& host, Failure failure) noexcept override {
    const auto* kind = failure == Failure::kTemporary ? "temporary"
                       : failure == Failure::kRefused ? "refused"
                                                      : "wrong_bytes";
    errors_.of({host, kind}).add();
  }

 private:
  const std::shared_ptr<MetricRegistry> registry_;
  MetricSeries<Counter>& errors_;
};

// StreamMetrics with the registry that it needs.
std::shared_ptr<StreamMetrics> make_stream_metrics(const std::shared_ptr<MetricRegistry>& registry) {
  struct Both {
    std::shared_ptr<MetricRegistry> registry;
    StreamMetrics metrics;
  };
  const auto both = std::make_shared<Both>(registry, StreamMetrics(*registry));
  return {both, &both->metrics};
}

}  // namespace

DaemonMetrics::DaemonMetrics(std::string_view version)
    : registry_(std::make_shared<MetricRegistry>()),
      streams_(make_stream_metrics(registry_)),
      sources_(std::make_shared<CountedSources>(registry_)),
      ready_seconds_(registry_->histogram(
          {.name = "varve_mount_ready_seconds",
           .help = "From the wish for an image to its mount; cold: nothing of it was in the store.",
           .labels = {"image", "start"},
           .max_series = kMaxImages,
           .bounds = duration_bounds()})),
      untrusted_(*registry_->counter(
          {.name = "varve_untrusted_total", .help = "Images refused as nobody who counts vouches for an index."})),
      mounts_(registry_->gauge({.name = "varve_mounts",
                                .help = "Images that are mounted; idle: kept for the next session.",
                                .labels = {"state"}})),
      sessions_(
          *registry_->gauge({.name = "varve_sessions", .help = "Sessions and other commands that hold an image."})),
      pulls_(*registry_->gauge({.name = "varve_background_pulls", .help = "Pulls under way that nobody waits for."})),
      store_bytes_(*registry_->gauge({.name = "varve_store_bytes", .help = "Size of the store on disk."})),
      store_max_bytes_(
          *registry_->gauge({.name = "varve_store_limit_bytes", .help = "Size that it may have; 0: no limit."})) {
  registry_->gauge({.name = "varve_build_info", .help = "1, with the version.", .labels = {"version"}})
      .of({version})
      .set(1);
}

void DaemonMetrics::note_ready(const std::string& reference, bool cold, double seconds) {
  ready_seconds_.of({reference, cold ? "cold" : "warm"}).observe(seconds);
}

void DaemonMetrics::note_untrusted() { untrusted_.add(); }

void DaemonMetrics::set_counts(const DaemonCounts& counts) {
  mounts_.of({"used"}).set(double(counts.mounts));
  mounts_.of({"idle"}).set(double(counts.idle_mounts));
  sessions_.set(double(counts.leases));
  pulls_.set(double(counts.pulls));
  store_bytes_.set(double(counts.store_bytes));
  store_max_bytes_.set(double(counts.store_max_bytes));
  streams_->set_totals(counts.streams);
}

DaemonCounts Daemon::counts() {
  DaemonCounts counts{.store_bytes = streams_->store_bytes(),
                      .store_max_bytes = options_.streams.store_limit.max_bytes,
                      .streams = streams_->totals()};
  images_.for_each([&](const ImageMount& mount) { ++(mount.idle_since ? counts.idle_mounts : counts.mounts); });
  counts.leases = leases_.size();
  for (const auto& pull : pulls_.list()) counts.pulls += pull.error.empty() ? 1 : 0;
  return counts;
}

// What it was asked for, ended with this daemon, told what others learnt of registries, and telling where it fails.
ImageSpec Daemon::watched(ImageSpec spec) const {
  spec.registry.cancel = &no_more_reads_;
  spec.registry.known_hosts = known_hosts_;
  if (options_.metrics) spec.registry.watch = options_.metrics->sources();
  return spec;
}

// Before anything is fetched for its use.
void Daemon::note_ready(const ServedImage& image, double seconds) const {
  if (!options_.metrics) return;
  const bool cold =
      std::ranges::all_of(image.distinct_layers(), [](const auto& layer) { return layer->stats().present_bytes == 0; });
  options_.metrics->note_ready(image.reference(), cold, seconds);
}

}  // namespace varve::fuse
