#include "fuse/daemon/service_manager.h"

#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/mount/pass_fd.h"

namespace varve::fuse {

bool notify_service_manager(std::string_view state, int fd) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path == nullptr || (*path != '/' && *path != '@') || std::strlen(path) >= sizeof address.sun_path) return false;
  std::strcpy(address.sun_path, path);
  if (*path == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  try {
    const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
      fail_errno("reach {}", path);
    send_with_fd(socket.get(), as_bytes(state), fd);
    return true;
  } catch (const std::exception& error) {
    log::warn("cannot tell the service manager {}: {}", state.substr(0, state.find('\n')), error.what());
    return false;
  }
}

UniqueFd take_signals(std::initializer_list<int> numbers) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : numbers) ::sigaddset(&signals, number);
  // Threads inherit the mask, so that only the descriptor sees them.
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) {
    errno = error;
    fail_errno("block signals");
  }
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) fail_errno("make a signal descriptor");
  ::signal(SIGPIPE, SIG_IGN);
  return fd;
}

}  // namespace varve::fuse
