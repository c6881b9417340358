#include "analyzer/prune/apply/cold_marks.h"

#include "analyzer/prune/apply/archive.h"
#include "core/index/publish_index.h"

namespace varve::prune {

ColdMarks mark_cold_by_plan(const ImageView& image, const Plan& plan, const CancelFlag& cancel) {
  const auto& opened = image.opened();
  // The last one published: the new one comes after it.
  ColdMarks marks{.index = {},
                  .before = index::load_index(opened.local(), opened.image(), index::IndexPlace::kRepository),
                  .summary = {}};
  const auto cold = cold_content(plan, image.inventory(), opened);
  const auto ranges = index::mark_cold(image.tree(), marks.before.maps, cold, &marks.summary);
  marks.index =
      index::publish_cold(opened.image(), marks.before, ranges, opened.local(), *opened.image().repository, cancel)
          .manifest.digest;
  return marks;
}

}  // namespace varve::prune
