#pragma once
// Pulls of whole images: those that nobody waits for, and what is known of all.
#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/digest.h"
#include "core/base/threads/guarded.h"
#include "fuse/control/control_messages.h"
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
  // For status and log.
  struct Name {
    Digest image;
    std::string reference;
  };
  // Asked again for what is under way it goes on. Refused (nothing happens) after stop().
  void start(const What& what, const Name& name, std::vector<PulledLayer> layers);
  // The same for a mount, behind all who wait (`somebody_waits`), until end_fill(); one that somebody asks for with
  // start() meanwhile is his.
  void start_fill(const What& what, const Name& name, std::vector<PulledLayer> layers,
                  std::function<bool()> somebody_waits);
  // Soon; one that was begun by start() goes on.
  void end_fill(const What& what);
  // For somebody who waits: returns and throws as pull_layers() does.
  void run(const What& what, const Name& name, const std::vector<PulledLayer>& layers, const Work& work);
  // Under way, and of those that nobody waits for also what failed since the last was begun.
  std::vector<PullStatus> list();
  // Nothing is under way that nobody waits for.
  bool idle();
  // Ends them all, soon; what they have fetched stays.
  void stop();

 private:
  struct Listed {
    Listed(const What& pulled, const Name& called, const std::vector<PulledLayer>& wanted, const Progress& counted);
    PullStatus status() const;

    What what;
    Name name;
    std::vector<std::shared_ptr<LayerStream>> layers;
    std::uint64_t fetched_before;
    Stopwatch watch;
    const Progress& progress;
  };
  struct Pull {
    Pull(const What& what, const Name& name, const std::vector<PulledLayer>& layers, bool for_mount)
        : listed(what, name, layers, progress), fill(for_mount) {}

    Progress progress;
    Listed listed;
    Guarded<std::string> error;
    std::atomic<bool> fill;
    std::atomic<bool> finished = false;
    CancelFlag cancel;
    std::jthread thread;
  };
  struct State {
    std::map<What, std::unique_ptr<Pull>> pulls;
    std::vector<std::unique_ptr<Pull>> ending;  // cancelled
    std::list<Listed> waited_for;
    bool stopped = false;
  };
  void start(const What& what, const Name& name, std::vector<PulledLayer> layers, bool fill, PullPace pace);

  Guarded<State> state_;
};

}  // namespace varve::fuse
