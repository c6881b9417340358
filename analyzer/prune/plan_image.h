#pragma once
// The plan of an opened image: what it holds, what is known of its use, rules, forecast and savings, read in this order
// and put together.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analyzer/prune/image_view.h"
#include "analyzer/prune/keep_rules.h"
#include "analyzer/prune/make_plan.h"
#include "analyzer/prune/savings.h"
#include "analyzer/usage/database.h"
#include "analyzer/usage/probe.h"
#include "core/base/work.h"

namespace varve::prune {

struct PlanRequest {
  const ImageView& image;
  usage::Database& database;
  const KeepRules& rules;
  const usage::Probe* probe = nullptr;  // of this image; null: it was not probed, and the plan says so
  bool built_in_rules = true;           // the rules for notebook images that the program carries, too
  std::vector<std::string> gpu_arch =
      {};  // GPUs there are, as wanted_gpus() takes them; empty: no code goes cold for it
  Thresholds thresholds;
  usage::DayRange window;
  std::int32_t today = 0;            // day
  const Plan* previous = nullptr;    // may be null
  std::function<Savings()> savings;  // of the pinned versions beside the image; called last
};

// Whole: with forecast, affected notebooks and users, and what the pinned versions would save. Throws what the readers
// throw, UsageError for thresholds that make no sense, Unsupported for `gpu_arch` with an index without ELF facts,
// Cancelled. `work` counts bytes of the code that is read.
MadePlan plan_image(const PlanRequest& request, const Work& work);

}  // namespace varve::prune
