#include "core/oci/internal/source_state.h"

#include <algorithm>
#include <random>

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxRemembered = 4096;

// Less a random part, so that machines that lost a mirror together do not return to it together.
std::chrono::milliseconds rest_of(unsigned rests) {
  const auto bound = std::min<std::chrono::milliseconds>(kLongestRest, kFirstRest * (1u << std::min(rests, 16u)));
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds(
      std::uniform_int_distribution<std::int64_t>(bound.count() / 2, bound.count())(random));
}

}  // namespace

SourceState::Standing SourceState::standing(const Digest& digest) const {
  const std::lock_guard lock(mutex_);
  if (holds(wrong_, digest)) return Standing::kWrong;
  if (holds(absent_, digest) || holds(without_ranges_, digest)) return Standing::kPoor;
  if (rests_ == 0) return Standing::kGood;
  return clock_.now() < until_ || probing_ ? Standing::kPoor : Standing::kRested;
}

void SourceState::succeeded() {
  const std::lock_guard lock(mutex_);
  rests_ = 0;
}

bool SourceState::failed(const std::string& error, bool lasting) {
  const std::lock_guard lock(mutex_);
  ++failures_;
  last_error_ = error;
  const bool was_good = rests_ == 0;
  // Those that were under way together when it went away are one failure.
  if (!was_good && clock_.now() < until_) return false;
  until_ = clock_.now() + (lasting ? std::chrono::milliseconds(kLongestRest) : rest_of(rests_));
  ++rests_;
  return was_good;
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
  const std::lock_guard lock(mutex_);
  if (rests_ == 0 || probing_ || clock_.now() < until_) return false;
  probing_ = true;
  return true;
}

void SourceState::end_probe() {
  const std::lock_guard lock(mutex_);
  probing_ = false;
}

SourceStatus SourceState::status() const {
  const std::lock_guard lock(mutex_);
  SourceStatus status;
  status.state = rests_ == 0 ? "good" : "resting";
  status.bytes = bytes_;
  status.failures = failures_;
  status.wrong = wrong_answers_;
  status.last_error = last_error_;
  return status;
}

void SourceState::note(Until& list, const Digest& digest, std::chrono::seconds duration) {
  if (list.size() >= kMaxRemembered) list.clear();
  list[digest] = clock_.now() + duration;
}

bool SourceState::holds(const Until& list, const Digest& digest) const {
  const auto found = list.find(digest);
  return found != list.end() && clock_.now() < found->second;
}

}  // namespace varve::oci::internal
