#include "core/base/threads/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "core/base/threads/guarded.h"

namespace varve {

void parallel_for(std::size_t count, std::size_t jobs, const CancelFlag& cancel,
                  const std::function<void(std::size_t item, const CancelFlag& stop)>& work) {
  std::atomic<std::size_t> next = 0;
  CancelFlag stop(&cancel);
  Guarded<std::exception_ptr> failure;
  const auto run = [&] {
    try {
      for (std::size_t item = next++; item < count && !stop.cancelled(); item = next++) work(item, stop);
    } catch (...) {
      failure.with([](auto& first) {
        if (!first) first = std::current_exception();
      });
      stop.cancel();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(jobs, count); ++i) others.emplace_back(run);
    run();
  }
  if (const auto first = failure.with([](auto& kept) { return kept; })) std::rethrow_exception(first);
  cancel.throw_if_cancelled();
}

unsigned jobs_or_cores(unsigned jobs) { return jobs != 0 ? jobs : std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace varve
