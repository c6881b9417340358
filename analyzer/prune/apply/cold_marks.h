#pragma once
// What an image's index says is cold, by a plan.
#include "analyzer/prune/image_view.h"
#include "analyzer/prune/plan.h"
#include "core/base/threads/cancel.h"
#include "core/index/local_index.h"
#include "core/index/merge/mark_cold.h"

namespace varve::prune {

struct ColdMarks {
  Digest index;               // that is preferred now
  index::LoadedIndex before;  // that it was made from
  index::ColdSummary summary;
};

// Publishes a new index of the image that marks what the plan has cold or archived; what the image is does not change.
// Throws what publish_cold() throws.
ColdMarks mark_cold_by_plan(const ImageView& image, const Plan& plan, const CancelFlag& cancel);

}  // namespace varve::prune
