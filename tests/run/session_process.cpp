#include "tests/run/session_process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/running_process.h"
#include "fuse/session/user_namespace.h"

namespace varve::test {
namespace {

std::filesystem::path fresh_log_dir(const std::filesystem::path& parent) {
  static std::atomic<int> count = 0;
  const auto dir = parent / ("run-" + std::to_string(++count));
  std::filesystem::create_directories(dir);
  return dir;
}

void redirect(const std::filesystem::path& file, int to) {
  const auto fd = open_file(file, O_WRONLY | O_CREAT | O_TRUNC);
  ::dup2(fd.get(), to);
}

int run_in_child(const std::filesystem::path& log_dir, const fuse::SessionRequest& request,
                 const SessionProcess::Options& options) {
  try {
    if (!options.terminal) {
      ::dup2(open_file("/dev/null", O_RDONLY).get(), STDIN_FILENO);
      redirect(log_dir / "out", STDOUT_FILENO);
    }
    redirect(log_dir / "err", STDERR_FILENO);
    if (options.before) options.before();
    if (options.uid != 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(options.uid, options.uid, options.uid) != 0 ||
                             ::setresuid(options.uid, options.uid, options.uid) != 0))
      fail_errno("become user {}", options.uid);
    ::prctl(PR_SET_DUMPABLE, 1);  // as after an exec; a change of user alone hides our own /proc entries from us
    const auto result = fuse::run_session(
        request, [](const std::string&) { std::fprintf(stderr, "[ready]\n"); },
        [](const std::string& text) { std::fprintf(stderr, "[say] %s\n", text.c_str()); });
    if (options.after) options.after();
    if (!result.failure.empty()) std::fprintf(stderr, "[failure] %s\n", result.failure.c_str());
    if (!result.accesses_unwatched.empty()) std::fprintf(stderr, "[unwatched] %s\n", result.accesses_unwatched.c_str());
    std::fflush(nullptr);
    return result.exit_status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "[thrown] %s\n", error.what());
    return 125;
  }
}

}  // namespace

SessionProcess::SessionProcess(std::filesystem::path log_dir, const fuse::SessionRequest& request,
                               const Options& options)
    : log_dir_(fresh_log_dir(log_dir)) {
  std::fflush(nullptr);
  int terminal = -1;
  pid_ = options.terminal ? ::forkpty(&terminal, nullptr, nullptr, nullptr) : ::fork();
  if (pid_ < 0) fail_errno("fork");
  if (pid_ == 0) ::_exit(run_in_child(log_dir_, request, options));
  terminal_.reset(terminal);
}

SessionProcess::~SessionProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  fuse::wait_for(pid_);
}

pid_t SessionProcess::supervisor() const {
  const auto children = children_of(pid_);
  return children.empty() ? 0 : children.front();
}

void SessionProcess::type(const std::string& text) const { write_all(terminal_.get(), as_bytes(text), "the terminal"); }

void SessionProcess::press(char key) const {
  termios state{};
  for (int i = 0; i < 1000; ++i) {
    if (::tcgetattr(terminal_.get(), &state) != 0) fail_errno("ask the terminal");
    if ((state.c_lflag & ISIG) == 0) return type(std::string(1, key));
    ::usleep(10'000);
  }
  fail<Error>("nobody took over the terminal");
}

bool SessionProcess::read_terminal() {
  char buffer[4096];
  const auto got = ::read(terminal_.get(), buffer, sizeof buffer);
  if (got > 0) shown_.append(buffer, std::size_t(got));
  return got > 0;  // its end shows as an error
}

void SessionProcess::wait_to_see(const std::string& text) {
  while (shown_.find(text) == std::string::npos)
    if (!read_terminal()) fail<Error>("the terminal ended after: {}", shown_);
}

void SessionProcess::resize(unsigned short rows, unsigned short columns) const {
  const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  if (::ioctl(terminal_.get(), TIOCSWINSZ, &size) != 0) fail_errno("resize the terminal");
}

SessionOutcome SessionProcess::wait() {
  SessionOutcome outcome;
  if (terminal_) {
    while (read_terminal()) {
    }
    outcome.out = std::move(shown_);
  }
  outcome.status = fuse::shell_status(fuse::wait_for(pid_));
  pid_ = 0;
  if (!terminal_)
    if (const auto out = read_file_if_there(log_dir_ / "out")) outcome.out = std::string(as_text(*out));
  if (const auto err = read_file_if_there(log_dir_ / "err"))
    outcome.err = std::string(as_text(*err));  // not if it was killed before
  return outcome;
}

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.runtime << (way.uid == 0 ? " as root" : " as a plain user");
}

void give(const std::filesystem::path& tree, uid_t uid) {
  ::lchown(tree.c_str(), uid, uid);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(tree))
    ::lchown(entry.path().c_str(), uid, uid);
}

std::string next_line(const UniqueFd& lines, SessionProcess& session) {
  const UniqueFd ended(int(::syscall(SYS_pidfd_open, session.pid(), 0)));
  pollfd waits[] = {{.fd = lines.get(), .events = POLLIN, .revents = 0},
                    {.fd = ended.get(), .events = POLLIN, .revents = 0}};
  char text[256] = {};
  if (::poll(waits, 2, 60'000) < 1) return "nothing in a minute";
  if (::read(lines.get(), text, sizeof text - 1) <= 0) return "the session ended: " + session.wait().err;
  return std::string(text).substr(0, std::string(text).find('\n'));
}

bool has_user_namespaces(uid_t uid) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setresuid(uid, uid, uid) == 0 && ::unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  return child > 0 && fuse::shell_status(fuse::wait_for(child)) == 0;
}

std::string why_skipped(const Way& way) {
  if (::geteuid() != 0) return "skipped: sessions of all users are tested as root";
  if (way.uid != 0 && !has_user_namespaces(way.uid))
    return "skipped: plain users get no user namespaces here (a chroot, or a setting of the kernel)";
  if (way.runtime != "none" && fuse::find_program(way.runtime).empty()) return "skipped: no " + way.runtime;
  return "";
}

void copy_for_plain_user(const std::filesystem::path& shared) {
  const auto lower = shared / ("lower" + std::to_string(kPlainUser));
  std::filesystem::copy(shared / "lower0", lower,
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  give(lower, kPlainUser);
}

}  // namespace varve::test
