#include "analyzer/fleet/pools.h"

#include <utility>

namespace varve::fleet {

std::string_view pool_kind_name(PoolKind kind) {
  switch (kind) {
    case PoolKind::kConstant:
      return "constant";
    case PoolKind::kByHour:
      return "by-hour";
    case PoolKind::kFixed:
      return "fixed";
  }
  return "";
}

std::vector<Pool> simulate_pools(const Demand& demand, const Machines& machines, const Promise& promise,
                                 const ToJudge& to_judge, const Simulated& run, const CancelFlag& cancel) {
  std::vector<Pool> pools;
  if (to_judge.fixed) {
    pools.push_back({.kind = PoolKind::kFixed,
                     .machines = {*to_judge.fixed},
                     .outcome = simulate_fixed_fleet(demand, machines, *to_judge.fixed, run, cancel)});
    return pools;
  }
  const auto add = [&](PoolKind kind, std::vector<std::uint32_t> warm) {
    auto outcome = simulate_warm_pool(demand, machines, warm, run, cancel);
    pools.push_back({.kind = kind, .machines = std::move(warm), .outcome = std::move(outcome)});
  };
  if (to_judge.warm) {
    add(PoolKind::kConstant, {*to_judge.warm});
    return pools;
  }
  add(PoolKind::kConstant, {smallest_pool(demand, machines, promise.seconds, promise.share, run, cancel)});
  if (demand.arrivals_per_hour.size() > 1) add(PoolKind::kByHour, pool_by_hour(demand, machines, promise.share));
  return pools;
}

}  // namespace varve::fleet
