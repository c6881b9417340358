#include "analyzer/fleet/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <queue>

#include "analyzer/fleet/queueing.h"
#include "core/base/errors.h"

namespace varve::fleet {
namespace {

constexpr double kHour = 3600;
constexpr std::uint64_t kCancelEvery = 1 << 16;

// SplitMix64 (Steele, Lea, Flood 2014): the distributions of the standard library differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double uniform() { return double((next() >> 11) + 1) * 0x1p-53; }  // (0, 1]
  double exponential(double mean) { return -mean * std::log(uniform()); }

 private:
  std::uint64_t next() {
    auto z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

// A Poisson process whose rate changes on the hour, by thinning; and the lengths of the sessions, drawn beside it so
// that pools of any size see the same people.
class Arrivals {
 public:
  Arrivals(const Demand& demand, const Machines& machines, const Simulated& run)
      : demand_(demand),
        session_(machines.session),
        end_(run.hours * kHour),
        times_(run.seed),
        lengths_(run.seed ^ 0x5851f42d4c957f2d) {
    most_ = *std::ranges::max_element(demand.arrivals_per_hour);
    if (demand.mean() * run.hours > double(kMaxSimulatedArrivals))
      fail<UsageError>("{:.0f} arrivals to simulate, at most {} can be: take fewer days", demand.mean() * run.hours,
                       kMaxSimulatedArrivals);
  }
  struct Arrival {
    double time;
    double session;
    std::size_t hour;  // of the demand's period
  };
  bool next(Arrival& arrival) {
    if (most_ <= 0) return false;
    for (;;) {
      now_ += times_.exponential(kHour / most_);
      if (now_ >= end_) return false;
      const auto hour = std::size_t(now_ / kHour) % demand_.arrivals_per_hour.size();
      if (times_.uniform() * most_ > demand_.arrivals_per_hour[hour]) continue;
      arrival = {.time = now_, .session = lengths_.exponential(session_), .hour = hour};
      return true;
    }
  }

 private:
  const Demand& demand_;
  double session_, end_, most_ = 0, now_ = 0;
  Random times_, lengths_;
};

class Waits {
 public:
  explicit Waits(std::size_t hours) : by_hour_(hours) {}
  void add(double wait, std::size_t hour) {
    outcome_.waits.push_back(wait);
    by_hour_[hour].push_back(wait);
  }
  Outcome finish(double busy_seconds, double idle_seconds, double making_seconds, std::uint64_t delayed,
                 double cost_per_hour) {
    auto& waits = outcome_.waits;
    outcome_.arrivals = waits.size();
    outcome_.delayed = delayed;
    for (auto& hour : by_hour_) {
      std::ranges::sort(hour);
      outcome_.hourly_p95.push_back(hour.empty() ? 0 : hour[std::size_t(0.95 * double(hour.size() - 1))]);
    }
    std::ranges::sort(waits);
    if (!waits.empty()) {
      outcome_.mean_wait = std::accumulate(waits.begin(), waits.end(), 0.0) / double(waits.size());
      outcome_.p50 = outcome_.wait_at(0.5);
      outcome_.p90 = outcome_.wait_at(0.9);
      outcome_.p95 = outcome_.wait_at(0.95);
      outcome_.p99 = outcome_.wait_at(0.99);
      outcome_.max_wait = waits.back();
    }
    outcome_.busy_hours = busy_seconds / kHour;
    outcome_.idle_hours = idle_seconds / kHour;
    outcome_.making_hours = making_seconds / kHour;
    outcome_.cost = (busy_seconds + idle_seconds + making_seconds) / kHour * cost_per_hour;
    return std::move(outcome_);
  }

 private:
  Outcome outcome_;
  std::vector<std::vector<double>> by_hour_;
};

// Machines of a warm pool that nobody has yet: when each is, or will be, ready. Those first ready are given first,
// which is the order they were ordered in.
class WarmPool {
 public:
  WarmPool(const Machines& machines, std::uint32_t warm) : machines_(machines), target_(warm), ready_(warm, 0) {}

  // On the hour. Idle ones too many end at once; those in the making are taken, and not replaced then.
  void set_target(std::uint32_t target, double now) {
    target_ = target;
    while (ready_.size() < target_) order(now);
    for (; ready_.size() > target_ && ready_.front() <= now; ready_.pop_front()) idle_seconds += now - ready_.front();
  }
  // When the next one is ready for who comes now; another is ordered in its place, unless there are more than are to be
  // kept.
  double take(double now) {
    if (ready_.size() <= target_) order(now);
    const auto ready = ready_.front();
    ready_.pop_front();
    if (ready < now) idle_seconds += now - ready;
    return ready;
  }
  void end(double now) {
    for (const auto ready : ready_) idle_seconds += std::max(0.0, now - ready);
  }
  double idle_seconds = 0, making_seconds = 0;

 private:
  void order(double now) {
    ready_.push_back(now + machines_.make_warm);
    making_seconds += machines_.make_warm;
  }
  const Machines& machines_;
  std::uint32_t target_;
  std::deque<double> ready_;  // ascending: all take the same time to make
};

}  // namespace

double Outcome::wait_at(double share) const {
  return waits.empty() ? 0
                       : waits[std::min(waits.size() - 1, std::size_t(std::ceil(share * double(waits.size()))) - 1)];
}

Outcome simulate_warm_pool(const Demand& demand, const Machines& machines, const std::vector<std::uint32_t>& warm,
                           const Simulated& run, const CancelFlag& cancel) {
  Arrivals arrivals(demand, machines, run);
  Waits waits(demand.arrivals_per_hour.size());
  WarmPool pool(machines, warm.at(0));
  std::uint64_t delayed = 0, seen = 0, hour = 0;
  double busy_seconds = 0;
  for (Arrivals::Arrival arrival; arrivals.next(arrival);) {
    for (; double(hour + 1) * kHour <= arrival.time; ++hour)
      pool.set_target(warm[std::size_t(hour + 1) % warm.size()], double(hour + 1) * kHour);
    const auto ready = pool.take(arrival.time);
    delayed += ready > arrival.time;
    waits.add(std::max(0.0, ready - arrival.time) + machines.start_warm, arrival.hour);
    busy_seconds += arrival.session + machines.start_warm;
    if (seen++ % kCancelEvery == 0) cancel.throw_if_cancelled();
  }
  pool.end(run.hours * kHour);
  return waits.finish(busy_seconds, pool.idle_seconds, pool.making_seconds, delayed, machines.cost_per_hour);
}

Outcome simulate_fixed_fleet(const Demand& demand, const Machines& machines, std::uint32_t count, const Simulated& run,
                             const CancelFlag& cancel) {
  if (count == 0) fail<UsageError>("a fleet has at least one machine");
  Arrivals arrivals(demand, machines, run);
  Waits waits(demand.arrivals_per_hour.size());
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;  // when each machine takes its next session
  for (std::uint32_t i = 0; i < count; ++i) free_at.push(0);
  std::uint64_t delayed = 0, seen = 0;
  double busy_seconds = 0, reset_seconds = 0, end = run.hours * kHour;
  for (Arrivals::Arrival arrival; arrivals.next(arrival);) {
    const auto begin = std::max(arrival.time, free_at.top());
    delayed += free_at.top() > arrival.time;
    free_at.pop();
    const auto busy = machines.start_warm + arrival.session;
    free_at.push(begin + busy + machines.reset);
    waits.add(begin - arrival.time + machines.start_warm, arrival.hour);
    busy_seconds += busy;
    reset_seconds += machines.reset;
    end = std::max(end, begin + busy + machines.reset);
    if (seen++ % kCancelEvery == 0) cancel.throw_if_cancelled();
  }
  const auto idle_seconds = std::max(0.0, count * end - busy_seconds - reset_seconds);
  return waits.finish(busy_seconds, idle_seconds, reset_seconds, delayed, machines.cost_per_hour);
}

std::uint32_t smallest_pool(const Demand& demand, const Machines& machines, double seconds, double share,
                            const Simulated& run, const CancelFlag& cancel) {
  if (seconds < machines.start_warm)
    fail<UsageError>("nobody can be served within {} s: a session on a warm machine takes {} s to start", seconds,
                     machines.start_warm);
  const auto good = [&](std::uint32_t warm) {
    return simulate_warm_pool(demand, machines, {warm}, run, cancel).wait_at(share) <= seconds;
  };
  // More machines never make anybody wait longer: the same people come, and each finds at least as many ready.
  std::uint32_t high = std::max(
      1u, warm_for_share(*std::ranges::max_element(demand.arrivals_per_hour) / kHour * machines.make_warm, 1 - share));
  while (!good(high)) high *= 2;
  std::uint32_t low = 0;
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (good(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

std::vector<std::uint32_t> pool_by_hour(const Demand& demand, const Machines& machines, double share) {
  const auto& hours = demand.arrivals_per_hour;
  // A machine that is ordered now serves who comes while it is made: the busiest hour of those it touches counts.
  const auto touched = std::size_t(std::ceil(machines.make_warm / kHour)) + 1;
  std::vector<std::uint32_t> warm;
  for (std::size_t hour = 0; hour < hours.size(); ++hour) {
    double rate = 0;
    for (std::size_t ahead = 0; ahead < touched; ++ahead) rate = std::max(rate, hours[(hour + ahead) % hours.size()]);
    warm.push_back(warm_for_share(rate / kHour * machines.make_warm, 1 - share));
  }
  return warm;
}

}  // namespace varve::fleet
