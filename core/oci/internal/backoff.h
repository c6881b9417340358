#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/threads/cancel.h"
#include "core/oci/internal/http_headers.h"

namespace varve::oci::internal {

// No attempt is left.
class GaveUp : public TemporaryError {
 public:
  GaveUp(const std::string& message, std::optional<std::chrono::seconds> retry_after, bool no_answer)
      : TemporaryError(message), retry_after_(retry_after), no_answer_(no_answer) {}
  std::optional<std::chrono::seconds> retry_after() const { return retry_after_; }  // what the last answer asked for
  bool no_answer() const { return no_answer_; }  // the last attempt got none from the host

 private:
  std::optional<std::chrono::seconds> retry_after_;
  bool no_answer_;
};

// Full-jitter exponential back-off of one request: each wait is random between 0 and a bound that doubles from 100 ms
// to 10 s. What the registry asks for in Retry-After is a lower bound.
class Backoff {
 public:
  // `cancel`: ends waits, too, with Cancelled; null = nothing does.
  Backoff(Clock& clock, int max_attempts, const CancelFlag* cancel = nullptr)
      : clock_(clock), max_attempts_(max_attempts), cancel_(cancel) {}

  // Counts a failed attempt and waits before the next one. Throws GaveUp with `reason` when there is none left, or when
  // the registry asks for more patience than kMaxRetryAfter.
  void wait(const std::string& reason, std::optional<std::chrono::seconds> retry_after = std::nullopt,
            bool no_answer = false);
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
