#pragma once
#include "core/base/progress.h"
#include "core/base/threads/cancel.h"

namespace varve {

// What long work gets beside its input: where it counts what is done, and what tells it to stop. Both outlive it.
struct Work {
  Progress& progress;
  const CancelFlag& cancel;

  // So many bytes are done. Throws Cancelled.
  void add(std::uint64_t bytes) const {
    cancel.throw_if_cancelled();
    progress.add(bytes);
  }
};

}  // namespace varve
