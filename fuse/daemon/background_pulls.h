#pragma once
// Pulls that nobody waits for.
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/digest.h"
#include "core/base/guarded.h"
#include "fuse/daemon/pull.h"

namespace varve::fuse {

// Safe to use from any thread. Each pull has a thread of its own, and all stand behind readers.
class BackgroundPulls {
 public:
  ~BackgroundPulls() { stop(); }

  // What is fetched, by the manifest of the image's index, and whether with what is cold.
  struct What {
    Digest index;
    bool cold = false;
    auto operator<=>(const What&) const = default;
  };
  // Asked again for what is under way it goes on. `image` names it in the log. Refused (nothing happens) after stop().
  void start(const What& what, const Digest& image, std::vector<PulledLayer> layers);
  // Nothing is under way.
  bool idle();
  // Ends them all, soon; what they have fetched stays.
  void stop();

 private:
  struct Pull {
    std::atomic<bool> finished = false;
    CancelFlag cancel;
    std::jthread thread;
  };
  struct State {
    std::map<What, std::unique_ptr<Pull>> pulls;
    bool stopped = false;
  };
  Guarded<State> state_;
};

}  // namespace varve::fuse
