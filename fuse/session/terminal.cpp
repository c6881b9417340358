#include "fuse/session/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/inherited.h"

namespace varve::fuse {
namespace {

constexpr std::size_t kMostAtOnce = 4096;  // what a terminal takes in one go
constexpr int kMostLastReads = 4096;       // an orphan may go on talking for ever

// Changing a terminal from the background would stop this process.
class WithoutTerminalStop {
 public:
  WithoutTerminalStop() {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTTOU);
    ::sigprocmask(SIG_BLOCK, &stop, &old_mask_);
  }
  ~WithoutTerminalStop() { ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr); }
  WithoutTerminalStop(const WithoutTerminalStop&) = delete;
  WithoutTerminalStop& operator=(const WithoutTerminalStop&) = delete;

 private:
  sigset_t old_mask_{};
};

}  // namespace

TerminalKeeper::~TerminalKeeper() {
  if (!kept_) return;
  const WithoutTerminalStop quiet;
  // A shell with job control may have left us in the background.
  if (::tcgetpgrp(STDIN_FILENO) != ::getpgrp() && ::kill(-::tcgetpgrp(STDIN_FILENO), 0) != 0)
    ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &state_);
}

void TerminalKeeper::pass_keys_on() const {
  if (!kept_) return;
  const WithoutTerminalStop quiet;
  auto raw = state_;
  ::cfmakeraw(&raw);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

SessionTerminal::SessionTerminal() {
  outer_side_ = open_file("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK);
  int unlocked = 0;
  unsigned number = 0;
  if (::ioctl(outer_side_.get(), TIOCSPTLCK, &unlocked) != 0 || ::ioctl(outer_side_.get(), TIOCGPTN, &number) != 0)
    fail_errno("make the session's terminal");
  name_ = "/dev/pts/" + std::to_string(number);
  inner_.reset(::ioctl(outer_side_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!inner_) fail_errno("open the session's terminal {}", name_);
  take_size();
}

void SessionTerminal::enter(uid_t uid) const {
  // Ids that are not mapped here cannot own it; then it stays root's, and its descriptors are open anyway.
  if (uid != 0 && ::fchown(inner_.get(), uid, gid_t(-1)) != 0 && errno != EPERM && errno != EINVAL)
    fail_errno("give {} to user {}", name_, uid);
  ::setsid();
  if (::ioctl(inner_.get(), TIOCSCTTY, 0) != 0) fail_errno("take the terminal {}", name_);
  for (const int fd : kStandardStreams)
    if (::dup2(inner_.get(), fd) != fd) fail_errno("take the terminal {}", name_);
}

std::array<pollfd, 3> SessionTerminal::polls() const {
  const bool wants_keys = !gone_ && !input_ended_ && !input_paused_ && keys_.empty();
  const short inner_events = short((output_.empty() ? POLLIN : 0) | (keys_.empty() ? 0 : POLLOUT));
  return {pollfd{wants_keys ? STDIN_FILENO : -1, POLLIN, 0}, pollfd{output_.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0},
          pollfd{inner_events == 0 ? -1 : outer_side_.get(), inner_events, 0}};
}

bool SessionTerminal::relay(const std::array<pollfd, 3>& polled) {
  const bool was_gone = gone_;
  input_paused_ = false;
  if ((polled[0].revents & POLLIN) != 0) read_keys();
  if ((polled[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) gone_ = true;
  if ((polled[2].revents & POLLOUT) != 0) write_keys();
  if (output_.empty() && (polled[2].revents & POLLIN) != 0) read_output();
  if (gone_) output_.clear();
  if (!output_.empty() && polled[1].revents != 0) write_output();
  return gone_ && !was_gone;
}

void SessionTerminal::drain() {
  for (int i = 0; i < kMostLastReads; ++i) {
    while (!output_.empty() && !gone_) write_output();
    if (gone_ || !read_output()) return;
  }
}

void SessionTerminal::take_size() const {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) ::ioctl(outer_side_.get(), TIOCSWINSZ, &size);
}

void SessionTerminal::read_keys() {
  std::array<char, kMostAtOnce> bytes;
  const auto got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (got > 0) {
    keys_.append(bytes.data(), std::size_t(got));
    write_keys();
  } else if (got == 0) {
    input_ended_ = true;
  } else if (errno == EIO) {
    input_paused_ = true;
  }
}

void SessionTerminal::write_keys() {
  const auto written = ::write(outer_side_.get(), keys_.data(), keys_.size());
  if (written > 0) keys_.erase(0, std::size_t(written));
}

// False if there is nothing just now.
bool SessionTerminal::read_output() {
  std::array<char, kMostAtOnce> bytes;
  const auto got = ::read(outer_side_.get(), bytes.data(), bytes.size());
  if (got > 0) output_.append(bytes.data(), std::size_t(got));
  return got > 0;
}

void SessionTerminal::write_output() {
  const auto written = ::write(STDOUT_FILENO, output_.data(), output_.size());
  if (written > 0) {
    output_.erase(0, std::size_t(written));
  } else if (errno != EINTR && errno != EAGAIN) {
    gone_ = true;
    output_.clear();
  }
}

}  // namespace varve::fuse
