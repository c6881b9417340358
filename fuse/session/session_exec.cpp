#include "fuse/session/session_exec.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"
#include "fuse/session/image_user.h"
#include "fuse/session/own_root.h"
#include "fuse/session/own_streams.h"
#include "fuse/session/rootfs.h"
#include "fuse/session/runtimes/direct_entry.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/terminal.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxBundleBytes = 16 << 20;
constexpr std::uint64_t kMaxExecLogBytes = 1 << 20;
constexpr std::chrono::milliseconds kStartLook{20};
constexpr std::chrono::milliseconds kStartWait = std::chrono::seconds(30);
constexpr std::chrono::milliseconds kKnownWait = std::chrono::seconds(5);

// A file of memory: by /proc/self/fd it has a name in every mount namespace, and nothing of it stays.
UniqueFd memory_file(const char* name) {
  UniqueFd file(::memfd_create(name, 0));
  if (!file) fail_errno("make a file in memory");
  return file;
}

std::string path_of(const UniqueFd& file) { return "/proc/self/fd/" + std::to_string(file.get()); }

// What the session's own command is, with what is wished here in place of its.
SessionSpec process_like_the_first(const SessionStore::Listed& session, const ExecRequest& request) {
  const auto file = session.folder.bundle() / "config.json";
  const auto text = read_file_if_there(file, kMaxBundleBytes);
  if (!text)
    fail<Error>("session {} cannot be entered: what its processes are like is not written down", session.record.name);
  auto spec = read_process(*text, file.string());
  spec.id = session.record.id;
  spec.args = request.command;
  spec.terminal = request.terminal;
  if (!request.working_dir.empty())
    spec.working_dir = request.working_dir.starts_with('/') ? request.working_dir : "/" + request.working_dir;
  const char* term = std::getenv("TERM");
  if (request.terminal && term != nullptr) spec.env = with_variables(spec.env, {std::string("TERM=") + term});
  return spec;
}

// Hands signals on until the child has ended; its status as wait(2) gives it.
int attend(pid_t child, SignalInbox& inbox, bool terminal) {
  for (;;) {
    pollfd wait{.fd = inbox.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, -1);
    while (const auto signal = inbox.next()) {
      if (signal->number == SIGCHLD) continue;
      // Keys, and the terminal's size, go by the command's own terminal.
      if (terminal && signal->from_kernel && signal->number != SIGHUP) continue;
      ::kill(child, signal->number);
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
  }
}

// Whom a name means in the session's root, which only the supervisor's mounts show.
void settle_user(SessionSpec& spec, const SessionStore::Listed& session, const std::string& wanted) {
  if (wanted.empty()) return;
  const auto root = fmt::format("/proc/{}/root{}", session.supervisor->pid, session.folder.merged().string());
  spec.user = find_image_user(Rootfs::open(root), wanted);
  spec.env = with_variables(spec.env, {"HOME=" + spec.user.home});
}

// The session when its command runs, which is when its record names the runtime.
SessionStore::Listed await_start(const SessionStore& store, const SessionRecord& wanted) {
  auto& clock = Clock::system();
  const auto end = clock.now() + kStartWait;
  for (;;) {
    auto session = store.find(wanted.id);
    if (!session || !session->running)
      fail<UsageError>("the session {} does not run: `varve session start {}` goes on with it", wanted.name,
                       wanted.name);
    if (!session->record.runtime.empty() && session->supervisor) return std::move(*session);
    if (clock.now() >= end)
      fail<Error>(
          "session {} has not started its command yet, or its processes are not seen from here: try again where it was "
          "started",
          wanted.name);
    clock.sleep_for(kStartLook);
  }
}

// The command may run before the runtime has written down that it does; until then it knows no such container. In the
// supervisor's mounts. If it takes too long, the runtime says what is wrong.
void await_known(const std::filesystem::path& container) {
  auto& clock = Clock::system();
  const auto end = clock.now() + kKnownWait;
  while (!std::filesystem::exists(container / "state.json") && !std::filesystem::exists(container / "status") &&
         clock.now() < end)
    clock.sleep_for(kStartLook);
}

class SessionEntry {
 public:
  SessionEntry(const SessionStore::Listed& session, const ExecRequest& request, SignalInbox& inbox,
               const TerminalKeeper& keeper)
      : session_(session), request_(request), inbox_(inbox), keeper_(keeper), ids_(UserIds::of_this_process()) {
    supervisor_ = open_process(*session.supervisor);
    if (!supervisor_) fail<UsageError>("the session {} has ended", session.record.name);
  }

  ExecResult run() {
    auto spec = process_like_the_first(session_, request_);
    settle_user(spec, session_, request_.user);
    spec.env = with_variables(spec.env, request_.env);
    ::umask(022);
    if (ids_.is_root) take_own_device_streams();
    if (!request_.terminal) ::setpgid(0, 0);  // else a key reaches the command twice
    std::optional<RelayedStreams> streams;
    if (!request_.terminal && RelayedStreams::are_needed_for(session_.record.runtime)) streams.emplace();
    auto result = session_.record.runtime == "none" ? run_direct(spec) : run_by_runtime(spec);
    const auto failure = streams ? streams->finish() : "";
    return failure.empty() ? result : ExecResult{.exit_status = kOwnFailure, .failure = failure};
  }

 private:
  // This process gets the mounts and the user namespace of the supervisor, its children also its PID namespace: where
  // the runtime was called that made the session.
  void join_supervisor(int namespaces) const {
    const auto root = ids_.is_root ? root_of(session_.supervisor->pid) : UniqueFd();
    if (::setns(supervisor_.get(), namespaces | (ids_.is_root ? 0 : CLONE_NEWUSER)) != 0)
      fail_errno("enter session {}", session_.record.name);
    if (root) enter_root(root);
    if (!ids_.is_root) become_root_inside(ids_);
  }

  ExecResult run_by_runtime(SessionSpec& spec) {
    const auto program = program_of_runtime(session_.record.runtime);
    if (program.empty())
      fail<Unsupported>("session {} was started by {}, which is not installed any more", session_.record.name,
                        session_.record.runtime);
    if (!path_of_own_root().empty())
      fail<Unsupported>("session {}: in a chroot {} would enter the machine's root instead; not entered",
                        session_.record.name, session_.record.runtime);
    join_supervisor(CLONE_NEWNS | CLONE_NEWPID);
    await_known(session_.folder.runtime_state() / container_id(spec.id));
    const auto process = memory_file("process");
    const auto log = memory_file("log");
    write_all(process.get(), as_bytes(to_process_json(spec)), "the words of the command");
    auto words = runtime_words(session_.record.runtime, program, session_.folder.runtime_state(), path_of(log));
    words.insert(words.end(), {"exec", "--process", path_of(process), container_id(spec.id)});
    const auto child =
        start_program(words, own_environment(), {process.get(), log.get()}, [this] { inbox_.restore_mask(); });
    ExecResult result{.exit_status = shell_status(attend(child, inbox_, request_.terminal))};
    if (result.exit_status == 0) return result;
    Bytes said(std::min(kMaxExecLogBytes, file_size(log.get(), "log")));
    pread_exactly(log.get(), 0, said, "log");
    result.failure = last_log_error(as_text(said));
    if (result.failure.empty()) return result;  // the command's own status
    result.exit_status = status_of_start_failure(result.failure);
    result.failure_told = true;
    return result;
  }

  ExecResult run_direct(SessionSpec& spec) {
    const auto& own_ids = session_.record.own_ids;
    const bool one_id_mapped = !ids_.is_root && !ids_.needs_helpers;
    const DirectEntry entry(session_.folder, session_.supervisor->pid);
    if (one_id_mapped && !request_.user.empty())
      fail<Unsupported>("--user {}: a plain user with one id has no other", request_.user);
    // Still the same supervisor, so what was opened is its.
    if (find_process(session_.supervisor->pid) != session_.supervisor)
      fail<UsageError>("the session {} has ended", session_.record.name);
    entry.enter(own_ids ? UserIds::of_own(*own_ids) : ids_);
    const auto child = ::fork();
    if (child < 0) fail_errno("start a process in session {}", session_.record.name);
    if (child == 0) {
      int status = kOwnFailure;
      try {
        status = DirectEntry::run(spec, one_id_mapped, inbox_);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "varve: error: %s\n", error.what());
      }
      ::_exit(status);
    }
    if (request_.terminal && TerminalKeeper::in_foreground()) keeper_.pass_keys_on();
    return {.exit_status = shell_status(attend(child, inbox_, request_.terminal))};
  }

  const SessionStore::Listed& session_;
  const ExecRequest& request_;
  SignalInbox& inbox_;
  const TerminalKeeper& keeper_;
  UserIds ids_;
  UniqueFd supervisor_;
};

}  // namespace

ExecResult exec_in_session(const SessionStore& store, const SessionStore::Listed& wanted, const ExecRequest& request) {
  const auto session = await_start(store, wanted.record);
  SignalInbox inbox;
  const TerminalKeeper keeper(request.terminal);
  return SessionEntry(session, request, inbox, keeper).run();
}

}  // namespace varve::fuse
