#include "cli/session/detached.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ostream>

#include "cli/session/session_listing.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/inherited.h"
#include "fuse/session/session_store.h"
#include "fuse/session/user_namespace.h"

namespace varve::cli {
namespace {

void leave_terminal() {
  ::setsid();
  if (!lead_nowhere(std::array{STDIN_FILENO, STDOUT_FILENO})) fail_errno("leave the terminal");
}

// The session runs: who waits learns its id, and what is to be said from now on goes where the session's words go.
void report_ready(const Context& context, UniqueFd& report, const std::string& id) {
  if (const auto session = fuse::SessionStore(context.global.root).find(id)) {
    const auto log = open_file(session->folder.output(), O_WRONLY | O_APPEND);
    if (::dup2(log.get(), STDERR_FILENO) < 0) fail_errno("write to the session's log");
  }
  std::filesystem::current_path("/");  // its file system may be unmounted
  try {
    write_all(report.get(), as_bytes(id + "\n"), "the id of the session");
  } catch (const std::system_error&) {  // nobody waits any more
  }
  report.reset();
}

// "" at the end without one. With one the end is far: the session's own processes have the pipe too.
std::string await_id(const Context& context, int report, pid_t child) {
  std::string id;
  std::array<char, 64> bytes;
  for (bool told = false;;) {
    const auto got = ::read(report, bytes.data(), bytes.size());
    if (got == 0) return "";
    if (got > 0) id.append(bytes.data(), std::size_t(got));
    if (id.ends_with('\n')) return id.substr(0, id.size() - 1);
    if (got < 0 && errno != EINTR) fail_errno("wait for the session");
    if (!told && context.cancel.cancelled()) {
      told = true;
      ::kill(child, SIGTERM);
    }
  }
}

}  // namespace

int run_detached(Context& context,
                 const std::function<int(const std::function<void(const std::string& id)>& on_ready)>& run) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  context.out.flush();
  std::fflush(nullptr);
  const auto child = ::fork();
  if (child < 0) fail_errno("start the process that holds the session");
  if (child == 0) {
    read_end.reset();
    ::signal(SIGPIPE, SIG_IGN);
    leave_terminal();
    return run([&](const std::string& id) { report_ready(context, write_end, id); });
  }
  write_end.reset();
  const auto id = await_id(context, read_end.get(), child);
  if (id.empty()) return fuse::shell_status(fuse::wait_for(child));
  print_session(context, id);
  return 0;
}

}  // namespace varve::cli
