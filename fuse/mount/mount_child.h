#pragma once
// A process that looks into a mount, or ends it, in this daemon's stead. A thread of the daemon that waits for an
// answer of the daemon could not die with it, and would hold all its descriptors, locks included, so that no daemon
// could follow.
#include <sys/types.h>

#include <functional>
#include <span>

namespace varve::fuse {

// Ends with the daemon, and with the thread that made it. Not shared between threads.
class MountChild {
 public:
  // `body` runs in the child and returns its exit status. The child is a fork of a process with threads: it may neither
  // allocate nor lock nor throw. Of the daemon's descriptors it has `kept` alone (-1 is none). Throws
  // std::system_error.
  MountChild(std::span<const int> kept, const std::function<int()>& body);
  ~MountChild();  // kills it, if it was not waited for; does not wait for long where it hangs
  MountChild(const MountChild&) = delete;
  MountChild& operator=(const MountChild&) = delete;

  // Until it has ended: its exit status, EINTR if it was killed. Once.
  int wait();
  // Does not wait.
  bool has_ended();

 private:
  pid_t pid_;  // 0: it is no more
};

}  // namespace varve::fuse
