#pragma once
// What is known of one source of a repository: whether it is worth asking, for which blobs it is not, what it gave.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/oci/internal/first_answer.h"
#include "core/oci/repository.h"

namespace varve::oci::internal {

inline constexpr std::chrono::seconds kFirstRest{1};
inline constexpr std::chrono::seconds kLongestRest{60};
inline constexpr std::chrono::minutes kLongestRetryAfter{10};
inline constexpr std::chrono::minutes kAbsentFor{10};
inline constexpr std::chrono::hours kWrongFor{1};
inline constexpr std::chrono::minutes kWithoutRangesFor{1};

// What an attempt came to.
struct Trouble {
  bool lasting = false;                                            // a refusal, or the like
  bool no_answer = false;                                          // the host's trouble, whatever was asked for
  std::optional<std::chrono::seconds> retry_after = std::nullopt;  // what it asks for
};

// A host that does not answer rests: 1 s, then doubling to 60 s with each failure that follows a rest, at once for long
// if that is of the lasting kind, and as long as it asks for up to kLongestRetryAfter. Safe to use from any thread.
class HostRest {
 public:
  enum class State { kGood, kResting, kOver };  // kOver: a probe decides
  State state(Clock::TimePoint now) const;
  void end();
  // True if it was good before. Failures while it rests are one: they were under way together.
  bool begin(Clock::TimePoint now, const Trouble& trouble);
  bool begin_probe(Clock::TimePoint now);
  void end_probe();
  const std::shared_ptr<FirstAnswer>& first_answer() const { return first_answer_; }

 private:
  const std::shared_ptr<FirstAnswer> first_answer_ = std::make_shared<FirstAnswer>();
  mutable std::mutex mutex_;  // guards what follows
  unsigned rests_ = 0;        // since it was good
  Clock::TimePoint until_;
  bool probing_ = false;
};

// Safe to use from any thread. `clock` must outlive it.
class SourceState {
 public:
  // `host`: shared with other repositories of the host.
  SourceState(Clock& clock, std::shared_ptr<HostRest> host) : clock_(clock), host_(std::move(host)) {}

  // In the order in which sources of different standing are asked.
  enum class Standing {
    kGood,
    kRested,  // its rest is over; a probe decides
    kPoor,    // rests, lacks the blob, or sends it whole for ranges
    kWrong,   // gave bytes that were not the blob's
  };
  Standing standing(const Digest& digest) const;

  void succeeded();
  // It rests, or all of its host if that gave no answer. Returns true if it was good before.
  bool failed(const std::string& error, const Trouble& trouble);
  void note_absent(const Digest& digest);
  void note_without_ranges(const Digest& digest);
  // False if that was known.
  bool note_wrong(const Digest& digest, const std::string& error);
  // It has been read whole: ranges of it may be served now.
  void forget_without_ranges(const Digest& digest);
  bool lacks_ranges(const Digest& digest) const;

  // True for one caller at a time, if the rest is over; end_probe() follows.
  bool begin_probe();
  void end_probe();

  // Of its host.
  const std::shared_ptr<FirstAnswer>& first_answer() const { return host_->first_answer(); }

  void count_bytes(std::uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // Without the host.
  SourceStatus status() const;

 private:
  using Until = std::map<Digest, Clock::TimePoint>;
  void note(Until& list, const Digest& digest, std::chrono::seconds duration);
  bool holds(const Until& list, const Digest& digest) const;

  Clock& clock_;
  const std::shared_ptr<HostRest> host_;
  HostRest own_;  // of this repository there
  std::atomic<std::uint64_t> bytes_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  Until absent_, without_ranges_, wrong_;
  std::uint64_t failures_ = 0, wrong_answers_ = 0;
  std::string last_error_;
};

}  // namespace varve::oci::internal
