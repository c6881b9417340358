#pragma once
// What a daemon counts where somebody asks for metrics (docs/guide/metrics.md).
#include <memory>
#include <string>
#include <string_view>

#include "core/metrics/metrics.h"
#include "core/oci/repository.h"
#include "fuse/stream/stream_metrics.h"

namespace varve::fuse {

// How much there is of what comes and goes.
struct DaemonCounts {
  std::uint64_t mounts = 0;       // used
  std::uint64_t idle_mounts = 0;  // kept for the next session
  std::uint64_t leases = 0;       // sessions, and other commands that hold an image
  std::uint64_t pulls = 0;        // that nobody waits for
  std::uint64_t store_bytes = 0;
  std::uint64_t store_max_bytes = 0;  // 0 = no limit
  StreamTotals streams;
};

// Safe to use from any thread.
class DaemonMetrics {
 public:
  explicit DaemonMetrics(std::string_view version);
  DaemonMetrics(const DaemonMetrics&) = delete;
  DaemonMetrics& operator=(const DaemonMetrics&) = delete;

  // For whoever counts elsewhere. They outlive this.
  const std::shared_ptr<StreamMetrics>& streams() const { return streams_; }
  const std::shared_ptr<oci::SourceWatch>& sources() const { return sources_; }

  // An image could be used so long after it was asked for. Cold: nothing of it was in the store.
  void note_ready(const std::string& reference, bool cold, double seconds);
  // No index counted, or containers' policy refused the image.
  void note_untrusted();
  void set_counts(const DaemonCounts& counts);

  MetricRegistry& registry() { return *registry_; }

 private:
  const std::shared_ptr<MetricRegistry> registry_;  // streams and sources may outlive this
  const std::shared_ptr<StreamMetrics> streams_;
  const std::shared_ptr<oci::SourceWatch> sources_;
  MetricSeries<Histogram>& ready_seconds_;
  Counter& untrusted_;
  MetricSeries<Gauge>& mounts_;
  Gauge& sessions_;
  Gauge& pulls_;
  Gauge& store_bytes_;
  Gauge& store_max_bytes_;
};

}  // namespace varve::fuse
