#include "core/oci/internal/source_state.h"

#include <algorithm>

#include "core/base/random.h"

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxRememberedDigests = 4096;

// Less a random part, so that machines that lost a mirror together do not return to it together.
std::chrono::milliseconds rest_of(unsigned rests) {
  const auto bound = std::min<std::chrono::milliseconds>(kLongestRest, kFirstRest * (1u << std::min(rests, 16u)));
  return random_wait(bound / 2, bound);
}

}  // namespace

HostRest::State HostRest::state(Clock::TimePoint now) const {
  const std::lock_guard lock(mutex_);
  if (rests_ == 0) return State::kGood;
  return now < until_ || probing_ ? State::kResting : State::kOver;
}

void HostRest::end() {
  const std::lock_guard lock(mutex_);
  rests_ = 0;
}

bool HostRest::begin(Clock::TimePoint now, const Trouble& trouble) {
  const std::lock_guard lock(mutex_);
  const bool was_good = rests_ == 0;
  if (!was_good && now < until_) return false;
  auto rest = trouble.lasting ? std::chrono::milliseconds(kLongestRest) : rest_of(rests_);
  if (trouble.retry_after)
    rest = std::max<std::chrono::milliseconds>(
        rest, std::min<std::chrono::seconds>(*trouble.retry_after, kLongestRetryAfter));
  until_ = now + rest;
  ++rests_;
  return was_good;
}

bool HostRest::begin_probe(Clock::TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (rests_ != 0 && (probing_ || now < until_)) return false;
  return probing_ = true;
}

void HostRest::end_probe() {
  const std::lock_guard lock(mutex_);
  probing_ = false;
}

SourceState::Standing SourceState::standing(const Digest& digest) const {
  const std::lock_guard lock(mutex_);
  if (holds(wrong_, digest)) return Standing::kWrong;
  if (holds(absent_, digest) || holds(without_ranges_, digest)) return Standing::kPoor;
  const auto now = clock_.now();
  using State = HostRest::State;
  const auto own = own_.state(now), host = host_->state(now);
  if (own == State::kGood && host == State::kGood) return Standing::kGood;
  return own == State::kResting || host == State::kResting ? Standing::kPoor : Standing::kRested;
}

void SourceState::succeeded() {
  own_.end();
  host_->end();
}

bool SourceState::failed(const std::string& error, const Trouble& trouble) {
  {
    const std::lock_guard lock(mutex_);
    ++failures_;
    last_error_ = error;
  }
  return (trouble.no_answer ? *host_ : own_).begin(clock_.now(), trouble);
}

bool SourceState::note_wrong(const Digest& digest, const std::string& error) {
  const std::lock_guard lock(mutex_);
  const bool is_new = !holds(wrong_, digest);
  note(wrong_, digest, kWrongFor);
  if (!is_new) return false;
  ++failures_;
  ++wrong_answers_;
  last_error_ = error;
  return true;
}

void SourceState::note_absent(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  note(absent_, digest, kAbsentFor);
}

void SourceState::note_without_ranges(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  note(without_ranges_, digest, kWithoutRangesFor);
}

void SourceState::forget_without_ranges(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  without_ranges_.erase(digest);
}

bool SourceState::lacks_ranges(const Digest& digest) const {
  const std::lock_guard lock(mutex_);
  return holds(without_ranges_, digest);
}

bool SourceState::begin_probe() {
  const auto now = clock_.now();
  using State = HostRest::State;
  if (own_.state(now) == State::kGood && host_->state(now) == State::kGood) return false;
  if (!own_.begin_probe(now)) return false;
  if (host_->begin_probe(now)) return true;
  own_.end_probe();
  return false;
}

void SourceState::end_probe() {
  own_.end_probe();
  host_->end_probe();
}

SourceStatus SourceState::status() const {
  const auto now = clock_.now();
  using State = HostRest::State;
  const bool good = own_.state(now) == State::kGood && host_->state(now) == State::kGood;
  const std::lock_guard lock(mutex_);
  SourceStatus status;
  status.state = good ? "good" : "resting";
  status.bytes = bytes_;
  status.failures = failures_;
  status.wrong = wrong_answers_;
  status.last_error = last_error_;
  return status;
}

void SourceState::note(Until& list, const Digest& digest, std::chrono::seconds duration) {
  if (list.size() >= kMaxRememberedDigests) list.clear();
  list[digest] = clock_.now() + duration;
}

bool SourceState::holds(const Until& list, const Digest& digest) const {
  const auto found = list.find(digest);
  return found != list.end() && clock_.now() < found->second;
}

}  // namespace varve::oci::internal
