#include "fuse/session/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/process/inherited.h"
#include "fuse/session/forked_process.h"
#include "fuse/session/session_log.h"
#include "fuse/session/signal_inbox.h"
#include "fuse/session/supervisor.h"
#include "fuse/session/terminal.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

struct Pipes {
  UniqueFd report_read;
  UniqueFd report_write;
  UniqueFd lifeline_read;
  UniqueFd lifeline_write;

  Pipes() {
    std::array<int, 2> report{};
    std::array<int, 2> lifeline{};
    if (::pipe2(report.data(), O_CLOEXEC) != 0 || ::pipe2(lifeline.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    report_read.reset(report[0]);
    report_write.reset(report[1]);
    lifeline_read.reset(lifeline[0]);
    lifeline_write.reset(lifeline[1]);
  }
};

// What the supervisor tells comes as lines: a word, then text. That nobody listens any more is no error: it has
// cleaning up to do.
void send_line(int fd, const std::string& word, std::string text) noexcept {
  try {
    std::replace(text.begin(), text.end(), '\n', ' ');
    write_all(fd, as_bytes(word + " " + text + "\n"), "the report of the session");
  } catch (const std::exception& error) {
    log::debug("{}", error.what());
  }
}

class Reports {
 public:
  Reports(SessionResult& result, const std::function<void(const std::string&)>& on_ready,
          const std::function<void(const std::string&)>& say)
      : result_(result), on_ready_(on_ready), say_(say) {}

  // False at the end.
  bool read_some(int fd) {
    std::array<char, 4096> bytes;
    ssize_t got = 0;
    do got = ::read(fd, bytes.data(), bytes.size());
    while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    text_.append(bytes.data(), std::size_t(got));
    for (auto end = text_.find('\n'); end != text_.npos; end = text_.find('\n')) {
      take_line(text_.substr(0, end));
      text_.erase(0, end + 1);
    }
    return true;
  }

 private:
  void take_line(const std::string& line) {
    const auto space = line.find(' ');
    const auto word = line.substr(0, space);
    const auto rest = space == line.npos ? "" : line.substr(space + 1);
    if (word == "ready") {
      result_.runtime = rest;
      on_ready_(result_.id);
    } else if (word == "say") {
      say_(rest);
    } else if (word == "failed") {
      result_.failure = rest;
    } else if (word == "told") {
      result_.failure_told = true;
    } else if (word == "unwatched") {
      result_.accesses_unwatched = rest;
    }
  }

  SessionResult& result_;
  const std::function<void(const std::string&)>& on_ready_;
  const std::function<void(const std::string&)>& say_;
  std::string text_;
};

// What a detached session says, on its way to its log.
class Output {
 public:
  Output(const SessionFolder& folder, SessionResult& result) : log_(folder), result_(result) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    read_end_.reset(ends[0]);
    write_end_.reset(ends[1]);
    if (::fcntl(read_end_.get(), F_SETFL, O_NONBLOCK) != 0) fail_errno("make a pipe");
  }

  // In the session's first process: its standard streams, and those of all that it starts.
  void become_standard_streams() const {
    if (!lead_nowhere(std::array{STDIN_FILENO}) || ::dup2(write_end_.get(), STDOUT_FILENO) < 0 ||
        ::dup2(write_end_.get(), STDERR_FILENO) < 0)
      fail_errno("give the session its output");
  }
  void leave_to_session() { write_end_.reset(); }

  int fd() const { return read_end_.get(); }  // -1 when nothing can come any more
  void read_some() {
    std::array<std::byte, 65536> bytes;
    const auto got = ::read(read_end_.get(), bytes.data(), bytes.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return read_end_.reset();
    const auto text = ByteView(bytes).first(std::size_t(got));
    log_.write(text);
    if (result_.runtime.empty() && result_.said.size() < kMaxSaid)
      result_.said += as_text(text).substr(0, kMaxSaid - result_.said.size());
  }
  // When all who could say anything are gone.
  void read_rest() {
    while (read_end_) read_some();
  }

 private:
  static constexpr std::size_t kMaxSaid = 64 << 10;
  SessionLog log_;
  SessionResult& result_;
  UniqueFd read_end_;
  UniqueFd write_end_;
};

bool read_go(int lifeline) {
  char byte = 0;
  ssize_t got = 0;
  do got = ::read(lifeline, &byte, 1);
  while (got < 0 && errno == EINTR);
  return got == 1;
}

// It does nothing before it is noted who it is: then nobody else writes to the session's folder.
pid_t start_supervisor(SupervisorJob& job, Pipes& pipes, const Output* output) {
  const auto supervisor = start_in_namespaces(CLONE_NEWNS | CLONE_NEWPID, job.ids, [&] {
    pipes.lifeline_write.reset();
    pipes.report_read.reset();
    if (!read_go(pipes.lifeline_read.get())) {  // who started it is gone, or says why
      forget_unstarted(job);
      return kOwnFailure;
    }
    if (output != nullptr) output->become_standard_streams();
    const int report = pipes.report_write.get();
    const SupervisorEvents events{
        .ready = [&](const std::string& runtime) { send_line(report, "ready", runtime); },
        .say = [&](const std::string& text) { send_line(report, "say", text); },
        .failed = [&](int, const std::string& text) { send_line(report, "failed", text); },
        .told = [&] { send_line(report, "told", ""); },
        .unwatched = [&](const std::string& why) { send_line(report, "unwatched", why); },
    };
    return supervise(job, pipes.lifeline_read.get(), events);
  });
  try {
    job.store->write_process(job.session->folder, find_process(supervisor).value_or(RunningProcess{}));
    write_all(pipes.lifeline_write.get(), as_bytes("g"), "the lifeline of the session");
  } catch (...) {
    pipes.lifeline_write.reset();
    wait_for(supervisor);
    throw;
  }
  return supervisor;
}

// Null if nobody asked or the kernel does not allow it.
std::unique_ptr<AccessWatch> make_watch(const SessionRequest& request, const SessionFolder& folder,
                                        SessionResult& result) {
  if (!request.on_access) return nullptr;
  try {
    return std::make_unique<AccessWatch>(request.lower, folder.merged());
  } catch (const std::exception& error) {
    result.accesses_unwatched = error.what();
    return nullptr;
  }
}

// Hands signals on, takes reports and file accesses until the supervisor has ended. Returns its status as wait(2) gives
// it.
int follow(pid_t supervisor, SignalInbox& inbox, int report_fd, bool terminal, Reports& reports, AccessWatch* watch,
           const AccessWatch::Tell& tell, Output* output) {
  bool open = true;
  int status = 0;
  while (!collect_children(supervisor, status)) {  // and who read the command ahead
    std::array<pollfd, 4> waits = {pollfd{inbox.fd(), POLLIN, 0}, pollfd{open ? report_fd : -1, POLLIN, 0},
                                   pollfd{watch != nullptr ? watch->fd() : -1, POLLIN, 0},
                                   pollfd{output != nullptr ? output->fd() : -1, POLLIN, 0}};
    ::poll(waits.data(), waits.size(), -1);
    if (open && waits[1].revents != 0) open = reports.read_some(report_fd);
    if (waits[2].revents != 0) watch->take_some(tell);
    if (waits[3].revents != 0) output->read_some();
    while (const auto signal = inbox.next()) {
      if (signal->number == SIGCHLD) continue;
      // Keys, and the terminal's size, go by the session's own terminal. That the caller's is gone nobody there learns
      // by itself.
      if (terminal && signal->from_kernel && signal->number != SIGHUP) continue;
      ::kill(supervisor, signal->number);
    }
  }
  while (open) open = reports.read_some(report_fd);
  if (output != nullptr) output->read_rest();
  while (watch != nullptr && watch->take_some(tell)) {
  }
  return status;
}

OpenSession open_session(const SessionRequest& request, SessionStore& store, bool is_root) {
  const auto words = command_line(request.config, request.options);
  auto session = request.again.empty() ? store.create({.name = request.name,
                                                       .image = request.image,
                                                       .image_digest = request.image_digest,
                                                       .command = words,
                                                       .stop_signal = request.config.stop_signal,
                                                       .remove_at_exit = request.remove_at_exit,
                                                       .options = request.saved_options,
                                                       .ids = is_root ? request.ids : std::nullopt})
                                       : store.reopen(request.again);
  session.record.detached = request.detached;
  return session;
}

}  // namespace

SessionResult run_session(const SessionRequest& request, const std::function<void(const std::string& id)>& on_ready,
                          const std::function<void(const std::string&)>& say) {
  check_runtime_name(request.runtime);
  SessionStore store(request.root);
  for (const auto& id : store.sweep()) say(fmt::format("removed what was left of session {}", id));
  const auto ids = UserIds::of_this_process();
  auto session = open_session(request, store, ids.is_root);
  SessionResult result;
  result.id = session.record.id;
  const auto watch = make_watch(request, session.folder, result);
  SignalInbox inbox;
  const TerminalKeeper keeper(request.terminal);
  Pipes pipes;
  SupervisorJob job{.lower = request.lower,
                    .config = request.config,
                    .options = request.options,
                    .runtime = request.runtime,
                    .terminal = request.terminal,
                    .in_foreground = request.terminal && TerminalKeeper::in_foreground(),
                    .trials = trial_memory(request.root),
                    .ids = ids,
                    .own_ids = session.record.own_ids ? UserIds::of_own(*session.record.own_ids) : UserIds{},
                    .store = &store,
                    .session = &session,
                    .environment = own_environment(),
                    .starter_signals = &inbox,
                    .own_volumes = request.own_volumes,
                    .devices = request.devices,
                    .watch = watch.get(),
                    .at_end = request.at_end};
  Reports reports(result, on_ready, say);
  const auto output = request.detached ? std::make_unique<Output>(session.folder, result) : nullptr;
  int status = 0;
  try {
    const auto supervisor = start_supervisor(job, pipes, output.get());
    pipes.report_write.reset();
    if (output) output->leave_to_session();
    status = follow(supervisor, inbox, pipes.report_read.get(), request.terminal, reports, watch.get(),
                    request.on_access, output.get());
  } catch (...) {
    session.lock.reset();
    if (request.remove_at_exit) store.sweep();
    throw;
  }
  if (WIFSIGNALED(status)) {  // it could not clean up
    session.lock.reset();
    store.sweep();
    if (result.failure.empty() && result.runtime.empty()) result.failure = "the session's supervisor was killed";
  }
  if (watch) result.access_overflows = watch->overflows();
  result.exit_status = shell_status(status);
  return result;
}

}  // namespace varve::fuse
