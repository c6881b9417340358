#include "webhook/webhook_metrics.h"

namespace varve::webhook {
namespace {

// Seconds: from what is indexed already to an image of many gigabytes.
const std::vector<double> kJobBounds{0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600};

}  // namespace

WebhookMetrics::WebhookMetrics()
    : events_(registry_.counter({.name = "varve_webhook_events_total",
                                 .help = "Events and tags of sweeps by what came of them.",
                                 .labels = {"outcome"}})),
      jobs_(registry_.counter({.name = "varve_webhook_jobs_total",
                               .help = "Attempts at images by how they ended.",
                               .labels = {"outcome"}})),
      job_seconds_(*registry_.histogram({.name = "varve_webhook_job_duration_seconds",
                                         .help = "Attempts at images, whatever came of them.",
                                         .bounds = kJobBounds})),
      sweeps_(registry_.counter({.name = "varve_webhook_sweeps_total",
                                 .help = "Looks at the tags of all repositories that rules name.",
                                 .labels = {"outcome"}})),
      queue_(registry_.gauge({.name = "varve_webhook_images", .help = "Images of the queue.", .labels = {"state"}})),
      oldest_seconds_(*registry_.gauge(
          {.name = "varve_webhook_oldest_seconds", .help = "Age of the oldest image that is not done."})) {}

void WebhookMetrics::note_job(std::string_view outcome, double seconds) {
  jobs_.of({outcome}).add();
  job_seconds_.observe(seconds);
}

void WebhookMetrics::set_counts(const QueueCounts& counts) {
  queue_.of({"queued"}).set(double(counts.queued));
  queue_.of({"taken"}).set(double(counts.taken));
  queue_.of({"done"}).set(double(counts.done));
  queue_.of({"failed"}).set(double(counts.failed));
  oldest_seconds_.set(double(counts.oldest_seconds));
}

}  // namespace varve::webhook
