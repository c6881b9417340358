#pragma once
// A further command in a session that runs: in its root and all its namespaces, with its user, environment, rights and
// filter of system calls.
#include <functional>
#include <string>
#include <vector>

#include "fuse/session/session_store.h"

namespace varve::fuse {

struct ExecRequest {
  std::vector<std::string> command;  // not empty
  std::vector<std::string> env;      // NAME=value, beside and before what the session has
  std::string working_dir;           // "" = the session's
  std::string user;                  // "" = the session's
  bool terminal = false;             // standard input is a terminal, and the command gets one
};

struct ExecResult {
  int exit_status = 0;
  std::string failure = {};   // why the command never ran; "" if it did
  bool failure_told = false;  // the runtime has put it on standard error by itself
};

// Runs the command to its end in this process's foreground; signals go to it. The process is in the session's
// namespaces afterwards. Waits for a session that is being started. Call from a process with one thread. Throws
// UsageError for a session that does not run, Error if it cannot be entered from here.
ExecResult exec_in_session(const SessionStore& store, const SessionStore::Listed& session, const ExecRequest& request);

}  // namespace varve::fuse
