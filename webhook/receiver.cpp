#include "webhook/receiver.h"

#include "core/base/errors.h"
#include "core/base/hmac.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "core/metrics/metrics_server.h"

namespace varve::webhook {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr const char* kRetryAfterSeconds = "10";
constexpr std::size_t kCompareKeyBytes = 32;

HttpResponse later(const std::string& text, int status = 503) {
  auto response = HttpResponse::text(status, text + "\n");
  response.headers.emplace_back("Retry-After", kRetryAfterSeconds);
  return response;
}

class EndOfTurn {
 public:
  explicit EndOfTurn(std::binary_semaphore& turn) : turn_(turn) {}
  ~EndOfTurn() { turn_.release(); }
  EndOfTurn(const EndOfTurn&) = delete;
  EndOfTurn& operator=(const EndOfTurn&) = delete;

 private:
  std::binary_semaphore& turn_;
};

}  // namespace

Receiver::Receiver(const Settings& settings, const std::string& queue, WebhookMetrics& metrics,
                   std::function<void()> on_new, const Clock& clock)
    : settings_(settings),
      where_(queue),
      metrics_(metrics),
      on_new_(std::move(on_new)),
      compare_key_(random_bytes(kCompareKeyBytes)),
      senders_(clock) {
  metrics_.registry().before_text([this] {
    try {
      with_queue([&](WorkQueue& work) { metrics_.set_counts(work.counts()); });
    } catch (const std::exception& error) {
      log::warn("the queue: {}", error.what());  // the numbers of before
    }
  });
}

template <typename Use>
void Receiver::with_queue(Use&& use) {
  if (!turn_.try_acquire_for(kPatience)) throw TemporaryError("webhook queue: it is in use");
  const EndOfTurn end(turn_);
  try {
    if (!queue_) queue_ = std::make_unique<WorkQueue>(where_);
    use(*queue_);
  } catch (...) {
    queue_.reset();
    throw;
  }
}

// What is compared are digests under a key that nobody knows: how much of a guess is right does not show in the time.
bool Receiver::knows_secret(const HttpRequest& request) const {
  const auto given = hmac_sha256(compare_key_, request.header("authorization"));
  return given == hmac_sha256(compare_key_, settings_.secret) ||
         given == hmac_sha256(compare_key_, "Bearer " + settings_.secret);
}

HttpResponse Receiver::health() {
  try {
    with_queue([](WorkQueue& queue) { queue.counts(); });
  } catch (const std::exception& error) {
    log::warn("{}", error.what());
    return later("the queue does not answer");
  }
  return HttpResponse::text(200, "ok\n");
}

HttpResponse Receiver::take(const HttpRequest& request) {
  Notification found;
  try {
    found = parse_notification(request.body);
  } catch (const Error& error) {
    metrics_.note_event("bad");
    log::warn("a notification is left out: {}", error.what());
    return HttpResponse::text(200, "left out: it could not be read\n");
  }
  metrics_.note_event("bad", found.bad.size());
  metrics_.note_event("ignored", found.others);
  for (const auto& reason : found.bad) log::warn("an event is left out: {}", reason);
  std::size_t queued = 0;
  bool is_full = false, had_its_share = false;
  with_queue([&](WorkQueue& queue) {
    for (const auto& one : found.pushed) {
      if (settings_.rule_for(one.repository, one.tag) == nullptr) {
        metrics_.note_event("ignored");
        continue;
      }
      // What is known is no order, whoever sends it again.
      const bool may_order = settings_.address_images == 0 || request.peer.empty() ||
                             senders_.may_order(request.peer, settings_.address_images);
      const auto added = queue.add(one, may_order ? settings_.max_queued : 0);
      if (added == WorkQueue::Added::kNew) senders_.note_order(request.peer);
      if (added == WorkQueue::Added::kFull) (may_order ? is_full : had_its_share) = true;
      queued += added == WorkQueue::Added::kNew ? 1 : 0;
      metrics_.note_event(added == WorkQueue::Added::kNew     ? "queued"
                          : added == WorkQueue::Added::kKnown ? "known"
                                                              : "refused");
    }
  });
  if (queued > 0) on_new_();
  if (is_full) return later("the queue is full");
  if (had_its_share) {
    log::warn("{} has ordered {} images in a minute, as many as address-images says", request.peer,
              settings_.address_images);
    return later("no more new images from this address for now", 429);
  }
  return HttpResponse::text(200, fmt::format("{} images queued\n", queued));
}

HttpResponse Receiver::answer(const HttpRequest& request) {
  const bool is_known = settings_.secret.empty() || knows_secret(request);
  if (request.path == "/healthz") return request.method == "GET" ? health() : HttpResponse::method_not_allowed("GET");
  if (request.path == "/metrics") {
    if (request.method != "GET") return HttpResponse::method_not_allowed("GET");
    if (!is_known && !settings_.listen.is_of_this_machine()) return HttpResponse::text(401, "the secret is missing\n");
    return metrics_response(metrics_.registry());
  }
  if (request.path != "/" && request.path != "/events") return HttpResponse::text(404, "there is no such thing here\n");
  if (request.method != "POST") return HttpResponse::method_not_allowed("POST");
  if (!is_known) {
    metrics_.note_event("refused");
    log::warn("a notification came without the secret");
    return HttpResponse::text(401, "the secret is missing: it belongs into the header Authorization\n");
  }
  try {
    return take(request);
  } catch (const TemporaryError&) {
    metrics_.note_event("refused");
    throw;
  }
}

}  // namespace varve::webhook
