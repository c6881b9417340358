#include "core/oci/internal/backoff.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/random.h"

namespace varve::oci::internal {
namespace {

constexpr std::chrono::milliseconds kLookAtCancel{100};

}  // namespace

void Backoff::wait(const std::string& reason, std::optional<std::chrono::seconds> retry_after, bool no_answer) {
  if (++failures_ >= max_attempts_)
    throw GaveUp(fmt::format("{} (tried {} times)", reason, failures_), retry_after, no_answer);
  if (retry_after && *retry_after > kMaxRetryAfter)
    throw GaveUp(fmt::format("{}; the registry asks to wait {} s", reason, retry_after->count()), retry_after, false);
  const auto bound = std::min(kLastBound, kFirstBound * (1 << std::min(failures_ - 1, 10)));
  auto duration = random_wait(std::chrono::milliseconds(0), bound);
  if (retry_after) duration += *retry_after;
  log::debug("{}; tried again in {} ms", reason, duration.count());
  if (cancel_ == nullptr) return clock_.sleep_for(duration);
  for (auto left = duration;; left -= kLookAtCancel) {
    cancel_->throw_if_cancelled();
    if (left <= kLookAtCancel) return clock_.sleep_for(left);
    clock_.sleep_for(kLookAtCancel);
  }
}

bool is_temporary_status(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

std::optional<std::chrono::seconds> retry_after_of(const HttpHeaders& headers) {
  const auto value = headers.find("Retry-After");
  return value ? parse_retry_after(*value, std::chrono::system_clock::now()) : std::nullopt;
}

}  // namespace varve::oci::internal
