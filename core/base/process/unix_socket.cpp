#include "core/base/process/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/errors.h"

namespace varve {
namespace {

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.string().size() >= sizeof address.sun_path)
    fail<UsageError>("{}: a socket's path has at most {} bytes; choose a shorter --root", path.string(),
                     sizeof address.sun_path - 1);
  std::strcpy(address.sun_path, path.c_str());
  return address;
}

}  // namespace

UniqueFd make_unix_socket(int type) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket) fail_errno("make a socket");
  return socket;
}

bool connect_unix_socket(const UniqueFd& socket, const std::filesystem::path& path, std::string_view whom) {
  const auto address = address_of(path);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno == ENOENT || errno == ECONNREFUSED) return false;
  fail_errno("connect to {} at {}", whom, path.string());
}

UniqueFd listen_at(const std::filesystem::path& path, int type, int backlog) {
  const auto address = address_of(path);
  auto listener = make_unix_socket(type);
  ::unlink(path.c_str());
  const mode_t old_mask = ::umask(0177);
  const int bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(old_mask);
  if (bound != 0 || ::listen(listener.get(), backlog) != 0) fail_errno("listen at {}", path.string());
  return listener;
}

}  // namespace varve
