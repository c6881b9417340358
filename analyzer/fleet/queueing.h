#pragma once
// What queueing theory knows of pools, in closed form: where the simulator's search begins.
#include <cstdint>

namespace varve::fleet {

// The fewest warm machines for which at most `share` (0 < share < 1) of the arrivals find none, where each machine
// taken is replaced after a time of any distribution and `in_making` = arrival rate x mean time to make one: by Palm's
// theorem the machines in the making are Poisson distributed, and nobody waits while fewer than the warm ones are.
std::uint32_t warm_for_share(double in_making, double share);

}  // namespace varve::fleet
