#pragma once
// What queueing theory knows of pools, in closed form: the check of the simulator, and where its search begins.
#include <cstdint>

namespace varve::fleet {

// M/M/c (Erlang C): the share of arrivals that find all `servers` busy. `load` = arrival rate x mean service time,
// below `servers`.
double erlang_c(std::uint32_t servers, double load);
// Mean time in the queue, in the unit of `mean_service`.
double mean_wait_mmc(std::uint32_t servers, double load, double mean_service);

// The share of arrivals that find no warm machine, where each machine taken is replaced after a time of any
// distribution and `in_making` = arrival rate x mean time to make one: by Palm's theorem the machines in the making are
// Poisson distributed, and nobody waits while fewer than `warm` are.
double share_without_warm(std::uint32_t warm, double in_making);
// The fewest warm machines for which that share is at most `share` (0 < share < 1).
std::uint32_t warm_for_share(double in_making, double share);

}  // namespace varve::fleet
