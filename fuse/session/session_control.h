#pragma once
// Sessions that run, as others than their own processes see them: which there are, and how they are ended.
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "fuse/session/session_store.h"

namespace varve::fuse {

struct RunningSession {
  std::string id;
  std::string name;
  std::string image;
  pid_t pid = 0;  // of its supervisor; 0 while it is being started, or if it is of another PID namespace
};

// Oldest first.
std::vector<RunningSession> running_sessions(const SessionStore& store);

inline constexpr std::chrono::milliseconds kStopGrace = std::chrono::seconds(10);

// Sends the stop signal of its image, or SIGTERM, to the session's command and, if it still runs after `grace`, kills
// all its processes. Returns when the session has ended and what it leaves is tidied up; at once if it does not run.
// Throws Error if its processes cannot be seen from here, may not be signalled, or do not go.
void stop_session(const SessionStore& store, const SessionStore::Listed& session, std::chrono::milliseconds grace);

}  // namespace varve::fuse
