#pragma once
// Looks for what no event told of: the tags of all repositories that rules name.
#include <cstdint>

#include "core/base/threads/cancel.h"
#include "core/oci/repository.h"
#include "webhook/rules.h"
#include "webhook/webhook_metrics.h"
#include "webhook/work_queue.h"

namespace varve::webhook {

struct Swept {
  std::uint64_t repositories = 0;
  std::uint64_t tags = 0;    // that rules have
  std::uint64_t queued = 0;  // new
  std::uint64_t failed = 0;  // repositories that could not be read, each logged
};

// Repositories named without a pattern are asked for their tags; where a rule has a pattern, the registry's list of
// repositories too. What cannot be asked keeps nobody from being asked the next. Ends early where the queue is full.
// Throws as WorkQueue does, and Cancelled.
Swept sweep(const Settings& settings, const oci::RegistryOptions& registry, WorkQueue& queue, WebhookMetrics& metrics,
            const CancelFlag& cancel);

}  // namespace varve::webhook
