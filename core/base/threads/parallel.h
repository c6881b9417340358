#pragma once
// The same work on many items, several at a time.
#include <cstddef>
#include <functional>

#include "core/base/threads/cancel.h"

namespace varve {

// Calls work(0) … work(count - 1), each once, in that order as threads become free, on up to `jobs` threads of which
// the caller's is one. If one throws, no new item is begun, `stop` tells those under way, and the first exception is
// thrown when all have returned. `cancel` does the same, with Cancelled.
void parallel_for(std::size_t count, std::size_t jobs, const CancelFlag& cancel,
                  const std::function<void(std::size_t item, const CancelFlag& stop)>& work);

// How many threads "0: as many as there are cores" means; else `jobs`. At least 1.
unsigned jobs_or_cores(unsigned jobs);

}  // namespace varve
