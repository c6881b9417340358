#include "fuse/session/own_streams.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <array>

#include "core/base/errors.h"
#include "core/base/files/file_id.h"
#include "core/base/process/inherited.h"

namespace varve::fuse {
namespace {

constexpr const char* kName = "device";
constexpr std::size_t kPieceBytes = 64 << 10;
constexpr std::array<const char*, 3> kStreamNames = {"read standard input", "write standard output",
                                                     "write standard error"};

// At no folder: it lives as long as the stream.
UniqueFd make_private_tmpfs() {
  const UniqueFd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context || ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    fail_errno("make a file system for the session's standard streams");
  UniqueFd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (!mount) fail_errno("mount a file system for the session's standard streams");
  return mount;
}

// By its name others would meet it, too: a file, a folder, a disk, a named pipe.
bool is_of_the_machine(int stream) {
  struct stat status {};
  struct statfs file_system {};
  if (::fstat(stream, &status) != 0 || S_ISCHR(status.st_mode) || S_ISSOCK(status.st_mode)) return false;
  return !S_ISFIFO(status.st_mode) || (::fstatfs(stream, &file_system) == 0 && file_system.f_type != PIPEFS_MAGIC);
}

// Whether a call that failed is to be made again. The caller may have opened a named pipe so that nothing waits there.
bool may_go_on(int fd, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  pollfd wait{.fd = fd, .events = events, .revents = 0};
  ::poll(&wait, 1, -1);
  return true;
}

int write_piece(int to, const char* bytes, std::size_t size) {
  while (size > 0) {
    const auto written = ::write(to, bytes, size);
    if (written < 0 && may_go_on(to, POLLOUT)) continue;
    if (written < 0) return errno;
    bytes += written;
    size -= std::size_t(written);
  }
  return 0;
}

// Copies between its two descriptors until there is no more. System calls only, as all of the process that does it.
class Copying {
 public:
  Copying(int from, int to) : from_(from), to_(to) {}

  // False at the end; an error is its end too.
  bool copy_piece() {
    const auto got = ::read(from_, piece_.data(), piece_.size());
    if (got < 0 && may_go_on(from_, POLLIN)) return true;
    if (got < 0) error_ = errno;
    if (got > 0) error_ = write_piece(to_, piece_.data(), std::size_t(got));
    return got > 0 && error_ == 0;
  }
  int error() const { return error_; }

 private:
  int from_;
  int to_;
  int error_ = 0;
  std::array<char, kPieceBytes> piece_;
};

void tell(int control, int error) {
  if (error != 0) ::send(control, &error, sizeof error, MSG_NOSIGNAL);
}

// What the session writes. Asked for the end, it takes what is there and tells that it has; somebody may write on.
void copy_output(int pipe, int file, int control) {
  Copying copying(pipe, file);
  for (bool asked = false;;) {
    std::array<pollfd, 2> waits = {pollfd{pipe, POLLIN, 0}, pollfd{asked ? -1 : control, POLLIN, 0}};
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[0].revents != 0) {
      if (!copying.copy_piece()) return tell(control, copying.error());
    } else if (waits[1].revents != 0) {
      asked = true;
      ::close(control);
    }
  }
}

void copy_input(int file, int pipe, int control) {
  Copying copying(file, pipe);
  while (copying.copy_piece()) {
  }
  if (copying.error() != EPIPE) tell(control, copying.error());  // who does not want more has enough
}

}  // namespace

void take_own_device_streams() {
  for (const int stream : kStandardStreams) {
    struct stat status {};
    if (::fstat(stream, &status) != 0 || !S_ISCHR(status.st_mode) || ::isatty(stream) != 0) continue;
    const auto folder = make_private_tmpfs();
    // Read and write for all, whatever umask says: the command may be anybody.
    if (::mknodat(folder.get(), kName, S_IFCHR | 0666, status.st_rdev) != 0 ||
        ::fchmodat(folder.get(), kName, 0666, 0) != 0)
      fail_errno("make a device for the session's standard stream {}", stream);
    const UniqueFd own(::openat(folder.get(), kName, (::fcntl(stream, F_GETFL) & O_ACCMODE) | O_NOCTTY | O_CLOEXEC));
    if (!own || ::dup2(own.get(), stream) < 0) fail_errno("open the session's standard stream {}", stream);
  }
}

RelayedStreams::RelayedStreams() {
  try {
    const auto output = find_file_id(STDOUT_FILENO);
    const bool are_one = output && output == find_file_id(STDERR_FILENO);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO})
      if (is_of_the_machine(stream)) relay(stream);
    if (is_of_the_machine(STDERR_FILENO)) are_one ? join(STDERR_FILENO, STDOUT_FILENO) : relay(STDERR_FILENO);
  } catch (...) {
    give_back();
    throw;
  }
}

RelayedStreams::~RelayedStreams() { give_back(); }

void RelayedStreams::relay(int stream) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) fail_errno("make a pair of sockets");
  UniqueFd control(ends[0]);
  const UniqueFd told(ends[1]);
  UniqueFd own(::fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const bool is_input = stream == STDIN_FILENO;
  const auto& inner = is_input ? read_end : write_end;
  const auto& outer = is_input ? write_end : read_end;
  // Whoever the command is, it may open /dev/stdout.
  if (!own || ::fchmod(inner.get(), 0666) != 0) fail_errno("hand on the session's standard stream {}", stream);
  const auto child = ::fork();
  if (child < 0) fail_errno("start a process that hands on the session's standard stream {}", stream);
  if (child == 0) {
    ::signal(SIGPIPE, SIG_IGN);
    if (!lead_nowhere(kStandardStreams)) ::_exit(1);
    close_all_but(std::array{own.get(), outer.get(), told.get()});
    is_input ? copy_input(own.get(), outer.get(), told.get()) : copy_output(outer.get(), own.get(), told.get());
    ::_exit(0);
  }
  if (::dup2(inner.get(), stream) < 0) fail_errno("hand on the session's standard stream {}", stream);
  relayed_.push_back({.stream = stream, .own = std::move(own), .control = std::move(control)});
}

// So that what is written to both keeps its order.
void RelayedStreams::join(int stream, int other) {
  UniqueFd own(::fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!own || ::dup2(other, stream) < 0) fail_errno("hand on the session's standard stream {}", stream);
  relayed_.push_back({.stream = stream, .own = std::move(own), .control = {}});
}

void RelayedStreams::give_back() noexcept {
  for (const auto& one : relayed_) ::dup2(one.own.get(), one.stream);
}

std::string RelayedStreams::finish() {
  give_back();
  std::string failure;
  for (auto& one : relayed_) {
    const bool is_input = one.stream == STDIN_FILENO;
    ::shutdown(one.control.get(), SHUT_WR);
    int error = 0;
    ssize_t got = 0;
    do got = ::recv(one.control.get(), &error, sizeof error, is_input ? MSG_DONTWAIT : 0);
    while (got < 0 && errno == EINTR);
    if (got == ssize_t(sizeof error))
      failure = fmt::format("{}: {}", kStreamNames[std::size_t(one.stream)], std::system_category().message(error));
  }
  relayed_.clear();
  return failure;
}

}  // namespace varve::fuse
