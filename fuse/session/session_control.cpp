#include "fuse/session/session_control.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/errors.h"

namespace varve::fuse {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{20};
// Until a session that is being made has a supervisor.
constexpr milliseconds kStartPatience = std::chrono::seconds(10);
// A killed session has a writable layer to remove, perhaps.
constexpr milliseconds kEndPatience = std::chrono::seconds(60);

// The session as it is now; absent if it does not run (any more). By id: a name may be another's by now.
std::optional<SessionStore::Listed> find_running(const SessionStore& store, const std::string& id) {
  auto found = store.find(id);
  if (!found || !found->running) return std::nullopt;
  return found;
}

// True when the session has ended.
bool await_end(const SessionStore& store, const std::string& id, milliseconds patience) {
  auto& clock = Clock::system();
  const auto end = clock.now() + patience;
  while (find_running(store, id)) {
    if (clock.now() >= end) return false;
    clock.sleep_for(kLook);
  }
  return true;
}

void send(const UniqueFd& process, int signal, const SessionRecord& record) {
  if (::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) != 0 && errno != ESRCH)
    fail_errno("signal session {}", record.name);
}

bool ends_within(const UniqueFd& process, milliseconds time) {
  auto& clock = Clock::system();
  const auto end = clock.now() + time;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - clock.now());
    pollfd wait{.fd = process.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, int(std::clamp<std::int64_t>(left.count(), 0, 3'600'000)));
    if (ready > 0) return true;
    if (clock.now() >= end) return false;
  }
}

// Its supervisor; none if the session has ended meanwhile.
UniqueFd supervisor_of(const SessionStore& store, const SessionRecord& record) {
  auto& clock = Clock::system();
  const auto end = clock.now() + kStartPatience;
  for (;;) {
    const auto running = find_running(store, record.id);
    if (!running) return {};
    if (running->supervisor)
      if (auto process = open_process(*running->supervisor)) return process;
    if (clock.now() >= end)
      fail<Error>(
          "session {} is running, but its processes are not seen from here (another PID namespace?): end it where it "
          "was started",
          record.name);
    clock.sleep_for(kLook);
  }
}

}  // namespace

std::vector<RunningSession> running_sessions(const SessionStore& store) {
  std::vector<RunningSession> running;
  for (const auto& session : store.list())
    if (session.running)
      running.push_back({.id = session.record.id,
                         .name = session.record.name,
                         .image = session.record.image,
                         .pid = session.supervisor ? session.supervisor->pid : 0});
  return running;
}

void stop_session(const SessionStore& store, const SessionStore::Listed& session, milliseconds grace) {
  const auto& record = session.record;
  if (const auto supervisor = supervisor_of(store, record)) {
    send(supervisor, SIGTERM, record);
    if (!ends_within(supervisor, grace)) send(supervisor, SIGKILL, record);
  }
  // Whoever started it holds it a little longer than its supervisor.
  if (!await_end(store, record.id, kEndPatience))
    fail<Error>("session {} was killed and has not ended after {} s", record.name, kEndPatience.count() / 1000);
}

}  // namespace varve::fuse
