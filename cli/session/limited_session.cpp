#include "cli/session/limited_session.h"

#include <signal.h>

#include "fuse/session/forked_process.h"

namespace varve::cli {
namespace {

constexpr int kTimeIsUp = 124;                     // as timeout(1) says it
constexpr std::chrono::milliseconds kGrace{3000};  // between being asked to end and being ended

}  // namespace

int run_limited_session(const fuse::SessionRequest& request, std::chrono::seconds limit, const CancelFlag& cancel) {
  fuse::ForkedProcess session([&] { return fuse::run_session_quietly(request); });
  if (const auto status = session.wait(limit, &cancel)) return *status;
  if (!session.end(SIGTERM, kGrace, &cancel)) session.end(SIGKILL, std::chrono::milliseconds(-1), &cancel);
  return kTimeIsUp;
}

}  // namespace varve::cli
