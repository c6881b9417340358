#include "fuse/stream/stream_metrics.h"

namespace varve::fuse {

StreamMetrics::StreamMetrics(MetricRegistry& registry)
    : received_bytes_(registry.counter({.name = "varve_received_bytes_total",
                                        .help = "Bytes of layers by where they came from, as `varve status` has them.",
                                        .labels = {"source"}})),
      read_errors_(*registry.counter(
          {.name = "varve_read_errors_total", .help = "Reads and pulls that failed after all retries."})),
      request_seconds_(registry.histogram({.name = "varve_fetch_duration_seconds",
                                           .help = "Range requests for layers, by the registry they were meant for.",
                                           .labels = {"origin"},
                                           .max_series = 20,
                                           .bounds = duration_bounds()})),
      wait_seconds_(*registry.histogram({.name = "varve_read_wait_seconds",
                                         .help = "Waits of readers whose bytes were not here.",
                                         .bounds = duration_bounds()})),
      evicted_bytes_(*registry.counter(
          {.name = "varve_evicted_bytes_total", .help = "Bytes that left the store for its limit."})) {}

void StreamMetrics::note_request(const std::string& origin, double seconds) {
  request_seconds_.of({origin}).observe(seconds);
}

void StreamMetrics::set_totals(const StreamTotals& totals) {
  received_bytes_.of({"registry"}).raise_to(totals.registry_bytes);
  received_bytes_.of({"mirror"}).raise_to(totals.mirror_bytes);
  received_bytes_.of({"pack"}).raise_to(totals.pack_bytes);
  received_bytes_.of({"local"}).raise_to(totals.local_bytes);
  read_errors_.raise_to(totals.errors);
}

}  // namespace varve::fuse
