#pragma once
// A session: a private writable layer over a read-only tree, run as the image's config says. docs/guide/sessions.md.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/oci/manifest.h"
#include "fuse/session/access_watch.h"
#include "fuse/session/bundle.h"
#include "fuse/session/cdi.h"
#include "fuse/session/session_store.h"

namespace varve::fuse {

struct SessionRequest {
  std::filesystem::path root;   // state: ROOT/sessions
  std::filesystem::path lower;  // the image's tree; stays mounted while the session runs
  std::string image;            // for `session ls`
  std::string image_digest;
  oci::ImageConfig config;
  CommandOptions options;
  std::string name;  // "" = the id
  bool remove_at_exit = false;
  std::string saved_options = "{}";  // JSON, kept in its record for who starts it again
  std::string again;                 // the id of a kept session that goes on; name, image and ids are those it has
  // Nobody is there: its standard input is empty, and what it says goes to its log (session_log.h).
  bool detached = false;
  std::optional<IdPool>
      ids;  // as root: the session gets a user namespace with ids of its own out of these. Others have one anyway
  std::string runtime = "auto";  // see RuntimeWish in runtime.h
  bool terminal = false;         // standard input is a terminal, and the command gets one
  // Mounted besides the user's volumes; one that finds no place is left out with a word to `say`. They do not hold the
  // command.
  std::vector<Volume> own_volumes;
  CdiEdits devices;  // what the devices need that the session has (cdi.h)
  // Called with each file of the image that the session opens or executes (access_watch.h), from the process that
  // called run_session(). Empty: nobody watches, and that costs nothing.
  AccessWatch::Tell on_access;
  // Called as root of the session's user namespace when its last process has ended and before its layer goes; must not
  // throw.
  std::function<void()> at_end;
};

struct SessionResult {
  std::string id;
  std::string said;  // by a detached one that never got as far as its command; the first of it
  int exit_status = 0;
  std::string runtime;                 // what ran the command; "" if it never ran
  std::string failure;                 // why it never ran; "" if it did
  bool failure_told = false;           // the runtime has put it on standard error by itself
  std::uint64_t access_overflows = 0;  // times the kernel told fewer than there were
  std::string accesses_unwatched;      // why there are none; "" if they were watched, or nobody asked
};

// Runs a session to its end in this process's foreground: signals go to the command, its status comes back. Kept
// sessions stay in ROOT/sessions. `on_ready` is called with its id when the command is about to be executed, `say` with
// what was tried. Whatever ends this process, the session's processes and mounts end too. Call from a process with one
// thread. Throws what keeps a session from being made at all.
SessionResult run_session(const SessionRequest& request, const std::function<void(const std::string& id)>& on_ready,
                          const std::function<void(const std::string&)>& say);

}  // namespace varve::fuse
