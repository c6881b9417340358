#pragma once
// Fetches what a plan names. Who fetches, and how, is the caller's.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "analyzer/prewarm/plan.h"
#include "core/base/work.h"

namespace varve::prewarm {

struct CarryOutOptions {
  std::uint64_t budget_bytes = 0;  // to be downloaded, at most, as long as no transfer breaks
  std::size_t max_ranges = 1;      // of one call of `fetch`
};

// Fetches these ranges of one image of the plan, in this order, and returns when all is here: the bytes downloaded for
// them, broken transfers included. `progress` is called with the bytes that are done and expected of this call.
using FetchProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t expected_bytes)>;
using Fetch =
    std::function<std::uint64_t(std::size_t image, std::span<const LayerRange> ranges, const FetchProgress& progress)>;

struct Outcome {
  explicit Outcome(const Plan& plan) : fetched_bytes(plan.items.size()), left(plan.items.size()) {}

  std::vector<std::uint64_t> fetched_bytes;  // by item of the plan
  std::vector<bool> left;                    // by item: not asked for, as broken transfers took its share of the budget
  std::uint64_t sum_bytes = 0;               // fetched
};

// Item by item in the plan's order. What transfers that broke cost counts against the budget: an item that no longer
// fits is left, a smaller one after it may still be fetched. Progress is told in bytes of the plan, and never goes
// back. Throws Cancelled between calls of `fetch`, and what that throws; what is here then stays here.
Outcome carry_out(const Plan& plan, const CarryOutOptions& options, const Fetch& fetch, const Work& work);

}  // namespace varve::prewarm
