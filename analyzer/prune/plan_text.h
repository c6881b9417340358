#pragma once
// A plan for people: what goes cold and what that does, in at most 100 columns.
#include <cstddef>
#include <iosfwd>

#include "analyzer/prune/plan.h"

namespace varve::prune {

struct PlanTextOptions {
  std::size_t limit = 40;  // rows of the table; 0 = all
  bool all = false;        // rows for hot and watch, too
};

void write_plan(const Plan& plan, std::ostream& out, const PlanTextOptions& options = {});

}  // namespace varve::prune
