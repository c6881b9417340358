#include "analyzer/prewarm/carry_out.h"

#include <algorithm>

namespace varve::prewarm {
namespace {

// Progress over the whole plan, of which each item has the share that was planned for it, whatever it really took.
class PlannedProgress {
 public:
  explicit PlannedProgress(Progress& progress, std::uint64_t expected_bytes) : progress_(progress) {
    progress_.expect(expected_bytes);
  }
  FetchProgress within(const Item& item) {
    return [this, share = double(item.download_bytes)](std::uint64_t done, std::uint64_t expected) {
      reach(finished_bytes_ + std::uint64_t(share * double(done) / double(std::max<std::uint64_t>(expected, 1))));
    };
  }
  void finish(const Item& item) { reach(finished_bytes_ += item.download_bytes); }

 private:
  void reach(std::uint64_t bytes) {
    if (bytes > progress_.done_bytes()) progress_.add(bytes - progress_.done_bytes());
  }

  Progress& progress_;
  std::uint64_t finished_bytes_ = 0;
};

}  // namespace

Outcome carry_out(const Plan& plan, const CarryOutOptions& options, const Fetch& fetch, const Work& work) {
  Outcome outcome(plan);
  PlannedProgress progress(work.progress, plan.download_bytes);
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const auto& item = plan.items[i];
    if (item.ranges.empty()) continue;
    if (outcome.sum_bytes + item.download_bytes > options.budget_bytes) {
      outcome.left[i] = true;
      continue;
    }
    for (std::span<const LayerRange> rest(item.ranges); !rest.empty();) {
      work.cancel.throw_if_cancelled();
      const auto now = rest.first(std::min(rest.size(), options.max_ranges));
      outcome.fetched_bytes[i] += fetch(item.image, now, progress.within(item));
      rest = rest.subspan(now.size());
    }
    outcome.sum_bytes += outcome.fetched_bytes[i];
    progress.finish(item);
  }
  return outcome;
}

}  // namespace varve::prewarm
