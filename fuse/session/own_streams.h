#pragma once
// Standard streams as a session may have them.
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// For root, before a session's processes inherit this one's standard streams: one that is a device of the machine, such
// as /dev/null, becomes the same device in a file system of its own. crun makes streams the container's, and whoever
// owns a device, as root does all, may change its mode: an image would close the machine's /dev/null to everybody.
// All others stay as they are. Throws std::system_error.
void take_own_device_streams();

// While it lives, standard streams of this process that are files of the machine are pipes, and a process of its own
// copies between these and the files. A session that had the file itself could open it anew in another way than it was
// given: to write to its input, or to change the mode; crun even makes it the session's. runc has pipes by itself. Call
// from a process with one thread, whose signals are blocked: the copying goes on to its end. Throws std::system_error.
class RelayedStreams {
 public:
  static bool are_needed_for(std::string_view runtime) { return runtime == "crun" || runtime == "none"; }

  RelayedStreams();
  ~RelayedStreams();  // gives the process its own streams back
  RelayedStreams(const RelayedStreams&) = delete;
  RelayedStreams& operator=(const RelayedStreams&) = delete;

  // To be called when the command has ended: what was written by now is in the files when this returns. Who still has
  // a stream open goes on with it. "" or, on one line, what went wrong with a file. Once.
  std::string finish();

 private:
  struct Relayed {
    int stream;
    UniqueFd own;
    // To the process that copies: shut down asks for the end, closed is the end, an errno before it.
    UniqueFd control = {};
  };
  void relay(int stream);
  void join(int stream, int other);
  void give_back() noexcept;

  std::vector<Relayed> relayed_;
};

}  // namespace varve::fuse
