#pragma once
// A pool of machines under a demand, event by event. The same arguments give the same result on any machine.
#include <cstdint>
#include <vector>

#include "analyzer/fleet/demand.h"
#include "core/base/threads/cancel.h"

namespace varve::fleet {

inline constexpr std::uint64_t kMaxSimulatedArrivals = 20'000'000;

// All times in seconds.
struct Machines {
  double start_warm = 2;     // a session on a machine that is ready: from asking to a prompt
  double make_warm = 180;    // from ordering a machine until it is ready: boot, daemon, prewarm
  double session = 2700;     // mean length, exponentially distributed
  double reset = 0;          // a machine that goes back into a fixed fleet, between two sessions
  double cost_per_hour = 1;  // of a machine, from ordering to its end, in any currency
};

// How long people waited for a prompt, and what it cost.
struct Outcome {
  std::uint64_t arrivals = 0;
  std::uint64_t delayed = 0;                                               // found no machine ready
  double mean_wait = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max_wait = 0;  // start_warm included
  double busy_hours = 0;                                                   // machine hours with a session
  double idle_hours = 0;                                                   // ready, and nobody there
  double making_hours = 0;                                                 // being made, or reset
  double cost = 0;                                                         // of all three
  std::vector<double> hourly_p95;      // by hour of the demand's period; 0 where nobody came
  double wait_at(double share) const;  // the wait that this share of arrivals did not exceed
  std::vector<double> waits;           // ascending
};

struct Simulated {
  double hours = 24;
  std::uint64_t seed = 1;
};

// A warm pool: `warm[h]` machines are kept ready in hour h of the demand's period. A session takes one, and another is
// ordered at once; who finds none gets the next that is ready. A machine ends with its session. Too many when the
// number goes down: idle ones end. Throws UsageError for more than kMaxSimulatedArrivals, Cancelled.
Outcome simulate_warm_pool(const Demand& demand, const Machines& machines, const std::vector<std::uint32_t>& warm,
                           const Simulated& run, const CancelFlag& cancel);

// A fixed fleet of `count` machines that go from session to session; who finds all busy waits in line.
Outcome simulate_fixed_fleet(const Demand& demand, const Machines& machines, std::uint32_t count, const Simulated& run,
                             const CancelFlag& cancel);

// The smallest pool, the same at every hour, with which at most 1 - `share` of arrivals wait longer than `seconds`.
// Throws UsageError if no pool can: `seconds` below start_warm.
std::uint32_t smallest_pool(const Demand& demand, const Machines& machines, double seconds, double share,
                            const Simulated& run, const CancelFlag& cancel);

// A pool that follows the demand: for each hour what the demand of the time in which a machine is made asks for, in
// closed form.
std::vector<std::uint32_t> pool_by_hour(const Demand& demand, const Machines& machines, double share);

}  // namespace varve::fleet
