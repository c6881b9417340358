#pragma once
// Waits for the end of processes that hold a lease of an earlier daemon: they have no connection to this one that could
// tell.
#include <functional>
#include <thread>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "fuse/daemon/handover.h"

namespace varve::fuse {

class HolderWatch {
 public:
  struct Holder {
    UniqueFd process;              // open_process()
    std::function<void()> on_end;  // called once, from the watching thread; must not throw
  };
  explicit HolderWatch(std::vector<Holder> holders);
  // on_end is not called any more.
  ~HolderWatch();

 private:
  void watch(std::vector<Holder> holders);
  UniqueFd stop_;
  std::jthread thread_;
};

}  // namespace varve::fuse
