#include "fuse/session/session_control.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/running_process.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "fuse/session/signal_inbox.h"

namespace varve::fuse {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{20};
// Until a session that is being made has a supervisor.
constexpr milliseconds kStartPatience = std::chrono::seconds(10);
// A killed session has a writable layer to remove, perhaps.
constexpr milliseconds kEndPatience = std::chrono::seconds(60);
constexpr std::size_t kMaxProcBytes = 1 << 20;
constexpr int kMaxProcessDepth = 32;  // of processes below the supervisor

// The session as it is now; absent if it does not run (any more). By id: a name may be another's by now.
std::optional<SessionStore::Listed> find_running(const SessionStore& store, const std::string& id) {
  auto found = store.find(id);
  if (!found || !found->running) return std::nullopt;
  return found;
}

// Of cgroups(7), version 1: where /proc/PID/cgroup says that a process can be frozen.
void thaw_cgroup_of(pid_t process) {
  constexpr std::string_view kFreezer = ":freezer:";
  const auto groups = read_file_if_there(fmt::format("/proc/{}/cgroup", process), kMaxProcBytes);
  for (const auto line : split(groups ? as_text(*groups) : std::string_view(), "\n")) {
    const auto at = line.find(kFreezer);
    if (at == line.npos) continue;
    const auto path = fmt::format("/sys/fs/cgroup/freezer{}/freezer.state", line.substr(at + kFreezer.size()));
    const auto state = read_file_if_there(path, kMaxProcBytes);
    if (!state || !as_text(*state).starts_with("FROZEN")) continue;
    if (const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC)); file)
      write_all(file.get(), as_bytes("THAWED"), path);
  }
}

// runc freezes what is left of a container to kill it. Killed itself meanwhile, as it dies with the supervisor, it
// leaves processes behind that no signal reaches, and their PID namespace does not end.
void thaw_descendants(pid_t process, int depth = 0) noexcept {
  try {
    thaw_cgroup_of(process);
    for (const auto child : children_of(process))
      if (depth < kMaxProcessDepth) thaw_descendants(child, depth + 1);
  } catch (const std::exception& error) {
    log::debug("thaw: {}", error.what());  // it has ended
  }
}

// True when the session has ended. `killed`: its supervisor, if that was killed; 0 if not.
bool await_end(const SessionStore& store, const std::string& id, pid_t killed, milliseconds patience) {
  auto& clock = Clock::system();
  const auto end = clock.now() + patience;
  while (find_running(store, id)) {
    if (clock.now() >= end) return false;
    clock.sleep_for(kLook);
    if (killed > 0) thaw_descendants(killed);
  }
  return true;
}

void send(const UniqueFd& process, int signal, const SessionRecord& record) {
  if (const auto error = send_signal(process, signal))
    throw std::system_error(error, fmt::format("signal session {}", record.name));
}

int stop_signal_of(const SessionRecord& record) {
  if (record.stop_signal.empty()) return SIGTERM;
  if (const auto wanted = find_signal(record.stop_signal)) return *wanted;
  log::warn(
      "session {}: its image wants to be stopped by {}, which is no signal that sessions are sent: SIGTERM instead",
      record.name, printable(record.stop_signal));
  return SIGTERM;
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

// Its supervisor, and the number it has; none if the session has ended meanwhile.
std::pair<UniqueFd, pid_t> supervisor_of(const SessionStore& store, const SessionRecord& record) {
  auto& clock = Clock::system();
  const auto end = clock.now() + kStartPatience;
  for (;;) {
    const auto running = find_running(store, record.id);
    if (!running) return {};
    if (running->supervisor)
      if (auto process = open_process(*running->supervisor)) return {std::move(process), running->supervisor->pid};
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
  pid_t killed = 0;
  if (const auto [supervisor, pid] = supervisor_of(store, record); supervisor) {
    send(supervisor, stop_signal_of(record), record);
    if (!ends_within(supervisor, grace)) {
      send(supervisor, SIGKILL, record);
      killed = pid;
    }
  }
  // Whoever started it holds it a little longer than its supervisor.
  if (!await_end(store, record.id, killed, kEndPatience))
    fail<Error>("session {} was killed and has not ended after {} s", record.name, kEndPatience.count() / 1000);
}

}  // namespace varve::fuse
