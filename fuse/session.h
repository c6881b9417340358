#pragma once
// A session: a private writable layer over a read-only tree, run as the image's config says. docs/sessions.md.
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/oci/manifest.h"
#include "fuse/bundle.h"
#include "fuse/session_store.h"

namespace varve::fuse {

struct SessionRequest {
  std::filesystem::path root;    // state: ROOT/sessions
  std::filesystem::path lower;   // the image's tree; stays mounted while the session runs
  std::string image;             // for `session ls`
  std::string image_digest;
  oci::ImageConfig config;
  CommandOptions options;
  std::string name;              // "" = the id
  bool remove_at_exit = false;
  std::string runtime = "auto";  // "runc", "crun", "bwrap", "none"
  bool terminal = false;         // standard input is a terminal, and the command gets one
};

struct SessionResult {
  std::string id;
  int exit_status = 0;
  std::string runtime;       // what ran the command; "" if it never ran
  std::string failure;       // why it never ran; "" if it did
};

// Runs a session to its end in this process's foreground: signals go to the command, its status comes back. Kept sessions stay in
// ROOT/sessions. `on_ready` is called when the command is about to be executed, `say` with what was tried. Whatever ends this process, the
// session's processes and mounts end too. Call from a process with one thread. Throws what keeps a session from being made at all.
SessionResult run_session(const SessionRequest& request, const std::function<void()>& on_ready, const std::function<void(const std::string&)>& say);

}  // namespace varve::fuse
