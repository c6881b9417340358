#pragma once
// What the way to an origin can do, seen on the requests that are made anyway. As BBR has it (Cardwell et al., "BBR:
// Congestion-Based Congestion Control", 2016): the shortest wait for an answer, and the highest rate, of a short while;
// their product is what must be under way for the link to be busy.
#include <cstdint>
#include <mutex>
#include <optional>

#include "core/base/clock.h"

namespace varve::fuse {

struct LinkSpeed {
  double answer_seconds = 0;    // from a request to the first byte of its answer, at least; 0: none was seen
  double bytes_per_second = 0;  // at most, of all requests together; 0: too little was transferred to tell

  // Bytes that were asked for and are not here yet while the link is busy; 0 if that is not known.
  std::uint64_t bytes_under_way() const { return std::uint64_t(answer_seconds * bytes_per_second); }
};

// Safe to use from any thread.
class LinkMeter {
 public:
  // Times do not go back, but for those of threads that were overtaken.
  void note_request(Clock::TimePoint now);
  // The first bytes of the answer to a request of that time.
  void note_answer(Clock::TimePoint asked, Clock::TimePoint now);
  void note_bytes(std::uint64_t bytes, Clock::TimePoint now);
  // It is over, with or without an answer.
  void note_end();

  // Of the last ten to twenty seconds in which there were requests.
  LinkSpeed speed() const;

 private:
  void make_room(Clock::TimePoint now);

  mutable std::mutex mutex_;
  LinkSpeed now_;
  LinkSpeed before_;  // of the ten seconds before those
  Clock::TimePoint now_since_;
  unsigned requests_ = 0;
  // Since bytes came, with requests under way all the time.
  std::optional<Clock::TimePoint> busy_since_;
  std::uint64_t bytes_ = 0;
};

}  // namespace varve::fuse
