#include "fuse/stream/link_meter.h"

#include <algorithm>

namespace varve::fuse {
namespace {

using namespace std::chrono_literals;

constexpr auto kMemory = 10s;
// Shorter, and what lay in the kernel's buffers would be taken for what the link carries.
constexpr auto kSample = 50ms;

double seconds(Clock::TimePoint::duration duration) { return std::chrono::duration<double>(duration).count(); }

double least(double one, double other) { return one == 0 || other == 0 ? one + other : std::min(one, other); }

}  // namespace

void LinkMeter::make_room(Clock::TimePoint now) {
  if (now - now_since_ < kMemory) return;
  if (now_.answer_seconds != 0 || now_.bytes_per_second != 0) before_ = now_;
  now_ = {};
  now_since_ = now;
}

void LinkMeter::note_request(Clock::TimePoint now) {
  const std::lock_guard guard(mutex_);
  make_room(now);
  ++requests_;
}

void LinkMeter::note_answer(Clock::TimePoint asked, Clock::TimePoint now) {
  const std::lock_guard guard(mutex_);
  make_room(now);
  if (now > asked) now_.answer_seconds = least(now_.answer_seconds, seconds(now - asked));
}

void LinkMeter::note_bytes(std::uint64_t bytes, Clock::TimePoint now) {
  const std::lock_guard guard(mutex_);
  make_room(now);
  if (!busy_since_) {  // these came before there was anything to measure
    busy_since_ = now;
    bytes_ = 0;
    return;
  }
  bytes_ += bytes;
  if (now - *busy_since_ < kSample) return;
  now_.bytes_per_second = std::max(now_.bytes_per_second, double(bytes_) / seconds(now - *busy_since_));
  busy_since_ = now;
  bytes_ = 0;
}

void LinkMeter::note_end() {
  const std::lock_guard guard(mutex_);
  if (--requests_ == 0) busy_since_.reset();
}

LinkSpeed LinkMeter::speed() const {
  const std::lock_guard guard(mutex_);
  return {.answer_seconds = least(now_.answer_seconds, before_.answer_seconds),
          .bytes_per_second = std::max(now_.bytes_per_second, before_.bytes_per_second)};
}

}  // namespace varve::fuse
