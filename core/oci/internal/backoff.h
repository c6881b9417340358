#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "core/base/cancel.h"
#include "core/base/clock.h"
#include "core/oci/internal/http_headers.h"

namespace varve::oci::internal {

// Full-jitter exponential back-off of one request: each wait is random between 0 and a bound that doubles from 100 ms
// to 10 s. What the registry asks for in Retry-After is a lower bound.
class Backoff {
 public:
  // `cancel`: ends waits, too, with Cancelled; null = nothing does.
  Backoff(Clock& clock, int max_attempts, const CancelFlag* cancel = nullptr)
      : clock_(clock), max_attempts_(max_attempts), cancel_(cancel) {}

  // Counts a failed attempt and waits before the next one. Throws TemporaryError with `reason` when there is none left,
  // or when the registry asks for more patience than kMaxRetryAfter.
  void wait(const std::string& reason, std::optional<std::chrono::seconds> retry_after = std::nullopt);
  // After progress the count begins anew.
  void reset() { failures_ = 0; }
  int failures() const { return failures_; }

  static constexpr std::chrono::milliseconds kFirstBound{100};
  static constexpr std::chrono::milliseconds kLastBound{10'000};
  static constexpr std::chrono::seconds kMaxRetryAfter{120};

 private:
  Clock& clock_;
  int max_attempts_;
  const CancelFlag* cancel_;
  int failures_ = 0;
};

// 408, 429 and the 5xx that pass.
bool is_temporary_status(int status);
std::optional<std::chrono::seconds> retry_after_of(const HttpHeaders& headers);

}  // namespace varve::oci::internal
