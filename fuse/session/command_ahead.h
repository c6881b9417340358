#pragma once
// When the first bytes of a program are read, its mount fetches what a start of it reads (start-up packs, the needs of
// its loader). Read before the session is made, all that comes while the session is made and its runtime starts, and
// what the session itself reads of the image with it.
#include <memory>

#include "fuse/session/forked_process.h"
#include "fuse/session/session.h"

namespace varve::fuse {

// Reads the first bytes of the command and of its interpreters, in a process of its own, as that waits for them. Ends
// that process with itself.
class CommandAhead {
 public:
  // Call from a process with one thread. What goes wrong the session finds out itself.
  explicit CommandAhead(const SessionRequest& request) noexcept;
  ~CommandAhead();
  CommandAhead(const CommandAhead&) = delete;
  CommandAhead& operator=(const CommandAhead&) = delete;

 private:
  std::unique_ptr<ForkedProcess> process_;  // null: nothing is read
};

}  // namespace varve::fuse
