// Plans as somebody may have edited them: what is read is written back and read as the same, and can be explained.
#include <cstdlib>

#include "analyzer/prune/plan.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  prune::Plan plan;
  try {
    plan = prune::parse_plan({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const Error&) {
    return 0;  // refused with a message of ours; anything else thrown is a finding
  }
  const auto written = prune::to_json(plan);
  if (prune::to_json(prune::parse_plan(written, "written")) != written) std::abort();
  for (const auto& one : plan.verdicts) {
    if (prune::explain(plan, one.name).empty()) std::abort();
  }
  try {
    prune::explain(plan, "no-such-distribution");
  } catch (const NotFound&) {
  }
  return 0;
}
