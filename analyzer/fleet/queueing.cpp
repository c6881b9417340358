#include "analyzer/fleet/queueing.h"

#include <algorithm>
#include <cmath>

namespace varve::fleet {

std::uint32_t warm_for_share(double in_making, double share) {
  double below = 0;
  std::uint32_t warm = 0;
  // One more term a step; beyond twelve standard deviations nothing is left to add up but rounding.
  const auto most = std::uint32_t(in_making + 12 * std::sqrt(in_making) + 40);
  while (1 - below > share && warm < most) {
    below += std::exp(warm * std::log(std::max(in_making, 1e-300)) - in_making - std::lgamma(warm + 1.0));
    ++warm;
  }
  return warm;
}

}  // namespace varve::fleet
