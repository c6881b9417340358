#pragma once
// Answers registries: takes notifications into the queue.
#include <memory>
#include <semaphore>
#include <string>

#include "core/http/http_server.h"
#include "webhook/rules.h"
#include "webhook/sender_limit.h"
#include "webhook/webhook_metrics.h"
#include "webhook/work_queue.h"

namespace varve::webhook {

// Safe to use from any thread. What it is given outlives it.
class Receiver {
 public:
  // `on_new` is called when there is something new to do.
  Receiver(const Settings& settings, const std::string& queue, WebhookMetrics& metrics, std::function<void()> on_new,
           const Clock& clock = Clock::system());

  // POST / and POST /events: a notification. 200 also to what cannot be read, as registries send it again and again
  // otherwise, and nothing behind it. 401 without the secret, 503 while the queue is full or away, 429
  // while its sender has had its share: sent again later.
  // GET /healthz: 200 if the queue answers. GET /metrics: to this machine, or who knows the secret.
  HttpResponse answer(const HttpRequest& request);

 private:
  bool knows_secret(const HttpRequest& request) const;
  HttpResponse take(const HttpRequest& request);
  HttpResponse health();
  // Opened anew after an error. Throws TemporaryError if others have used it for too long.
  template <typename Use>
  void with_queue(Use&& use);

  const Settings& settings_;
  const std::string where_;
  WebhookMetrics& metrics_;
  const std::function<void()> on_new_;
  const Bytes compare_key_;
  std::binary_semaphore turn_{1};     // a timed mutex calls what GCC 12's ThreadSanitizer does not know
  std::unique_ptr<WorkQueue> queue_;  // it and what follows: of who has the turn
  SenderLimit senders_;
};

}  // namespace varve::webhook
