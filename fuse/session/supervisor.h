#pragma once
// The process between `varve run` and a session's command: first of a PID namespace, so that nothing survives it, with
// the mounts in its own mount namespace, so that they end with it too.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "core/oci/manifest.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/access_watch.h"
#include "fuse/session/bundle.h"
#include "fuse/session/cdi.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/session_store.h"
#include "fuse/session/signal_inbox.h"

namespace varve::fuse {

struct SupervisorJob {
  std::filesystem::path lower;  // the image's tree
  oci::ImageConfig config;
  CommandOptions options;
  std::string runtime = "auto";
  bool terminal = false;
  bool in_foreground = false;    // of that terminal
  std::filesystem::path trials;  // see RuntimeWish in runtime.h
  UserIds ids;                   // of the user who started it
  UserIds own_ids;               // of the user namespace that root gives the session; is_root: none
  const SessionStore* store = nullptr;
  OpenSession* session = nullptr;
  std::vector<std::string> environment;  // of the user who started it
  const SignalInbox* starter_signals = nullptr;
  std::vector<Volume> own_volumes;
  CdiEdits devices;
  const AccessWatch* watch = nullptr;  // to be started on the session's tree; null = nobody watches
  std::function<void()> at_end;        // may be empty
};

// What happens, told to whoever started the session.
struct SupervisorEvents {
  std::function<void(const std::string& runtime)> ready;            // the command is about to be executed
  std::function<void(const std::string& text)> say;                 // for those who want to know more
  std::function<void(int status, const std::string& text)> failed;  // it never ran
  std::function<void()> told;                             // what failed comes next is on standard error already
  std::function<void(const std::string& why)> unwatched;  // accesses will not be told
};

// Runs the session in this process, which must be the first of a PID and a mount namespace made by
// start_in_namespaces(), and cleans up: no process is left, the writable layer is removed if the session is to be.
// `lifeline` reads as ended when the starter is gone, which ends the session too. Returns the exit status of the
// command, or 125, 126 or 127.
int supervise(const SupervisorJob& job, int lifeline, const SupervisorEvents& events);

// In its place, where the starter was gone before it said so: nobody else tidies up after it.
void forget_unstarted(const SupervisorJob& job) noexcept;

}  // namespace varve::fuse
