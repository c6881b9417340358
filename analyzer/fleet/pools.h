#pragma once
// The pools that are looked at for a demand: what was asked to be judged, or what would keep a promise.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "analyzer/fleet/demand.h"
#include "analyzer/fleet/simulate.h"
#include "core/base/threads/cancel.h"

namespace varve::fleet {

// A session starts within `seconds` for this share of all people.
struct Promise {
  double seconds = 10;
  double share = 0.95;
  bool kept_by(const Outcome& outcome) const { return outcome.wait_at(share) <= seconds; }
};

// Judged instead of looking for a pool; at most one of them, and `fixed` counts first.
struct ToJudge {
  std::optional<std::uint32_t> warm;   // a pool of so many warm machines
  std::optional<std::uint32_t> fixed;  // a fixed fleet of so many machines
};

enum class PoolKind : std::uint8_t { kConstant, kByHour, kFixed };
std::string_view pool_kind_name(PoolKind kind);  // "constant" "by-hour" "fixed"

struct Pool {
  PoolKind kind = PoolKind::kConstant;
  std::vector<std::uint32_t> machines;  // one number, or one for each hour of the demand
  Outcome outcome;
};

// Never empty. Without anything to judge: the smallest pool that keeps the promise, and if the demand has hours, one
// that follows it. Throws what smallest_pool() and the simulations throw.
std::vector<Pool> simulate_pools(const Demand& demand, const Machines& machines, const Promise& promise,
                                 const ToJudge& to_judge, const Simulated& run, const CancelFlag& cancel);

}  // namespace varve::fleet
