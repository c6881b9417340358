#pragma once
// How many new images one sender may order, so that it cannot fill the queue for all others.
#include <cstdint>
#include <map>
#include <string>

#include "core/base/clock.h"

namespace varve::webhook {

// Not shared between threads without a lock.
class SenderLimit {
 public:
  explicit SenderLimit(const Clock& clock) : clock_(clock) {}

  // Whether fewer than `most` of its orders were noted in the minute that began with the first of them.
  bool may_order(const std::string& sender, std::uint64_t most) const;
  void note_order(const std::string& sender);

 private:
  struct Minute {
    Clock::TimePoint begin;
    std::uint64_t orders = 0;
  };
  bool is_over(const Minute& minute) const;

  const Clock& clock_;
  std::map<std::string, Minute> minutes_;  // by sender; those that are over go when another one comes
};

}  // namespace varve::webhook
