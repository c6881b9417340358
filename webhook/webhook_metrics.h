#pragma once
// What a webhook counts (docs/guide/metrics.md).
#include <string_view>

#include "core/metrics/metrics.h"
#include "webhook/work_queue.h"

namespace varve::webhook {

// Safe to use from any thread.
class WebhookMetrics {
 public:
  WebhookMetrics();

  // "queued": new. "known": told of before. "ignored": no image, or no rule has it. "bad": could not be read.
  // "refused": without the secret, or while the queue was full or away.
  void note_event(std::string_view outcome, std::size_t count = 1) { events_.of({outcome}).add(count); }
  // "done", "failed", "no_image", "again".
  void note_job(std::string_view outcome, double seconds);
  void note_sweep(bool went_well) { sweeps_.of({went_well ? "done" : "failed"}).add(); }
  void set_counts(const QueueCounts& counts);

  MetricRegistry& registry() { return registry_; }

 private:
  MetricRegistry registry_;
  MetricSeries<Counter>& events_;
  MetricSeries<Counter>& jobs_;
  Histogram& job_seconds_;
  MetricSeries<Counter>& sweeps_;
  MetricSeries<Gauge>& queue_;
  Gauge& oldest_seconds_;
};

}  // namespace varve::webhook
