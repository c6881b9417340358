#pragma once
// What streams count where somebody asks for metrics. Without it they count what `varve status` shows, and nothing
// else.
#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/metrics/metrics.h"
#include "fuse/stream/layer_stream.h"

namespace varve::fuse {

// Safe to use from any thread.
class StreamMetrics {
 public:
  // The registry must outlive it.
  explicit StreamMetrics(MetricRegistry& registry);

  // One range request, whether it went well or not. `origin`: the host of the repository, though a mirror may answer.
  void note_request(const std::string& origin, double seconds);
  // A reader found bytes missing, and has them (or an error) after so long.
  void note_wait(double seconds) { wait_seconds_.observe(seconds); }
  void note_evicted(std::uint64_t bytes) { evicted_bytes_.add(bytes); }
  void set_totals(const StreamTotals& totals);

 private:
  MetricSeries<Counter>& received_bytes_;
  Counter& read_errors_;
  MetricSeries<Histogram>& request_seconds_;
  Histogram& wait_seconds_;
  Counter& evicted_bytes_;
};

// One request, from now to its end on any way out. `metrics` may be null.
class TimedRequest {
 public:
  TimedRequest(StreamMetrics* metrics, const oci::Repository& repository)
      : metrics_(metrics), origin_(metrics == nullptr ? std::string() : repository.origin()) {}
  ~TimedRequest() {
    if (metrics_ != nullptr) metrics_->note_request(origin_, watch_.seconds());
  }
  TimedRequest(const TimedRequest&) = delete;
  TimedRequest& operator=(const TimedRequest&) = delete;

 private:
  StreamMetrics* const metrics_;
  const std::string origin_;
  const Stopwatch watch_;
};

}  // namespace varve::fuse
