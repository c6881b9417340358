#include "core/http/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/process/unix_socket.h"

namespace varve {
namespace {

constexpr int kBacklog = 128;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// No length: `host` is no address in numbers.
SocketAddress socket_address(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  auto& four = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    address.length = sizeof four;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1) {
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    address.length = sizeof six;
  }
  return address;
}

std::uint16_t port_of(int socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    fail_errno("ask for the port of a socket");
  return ntohs(address.storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port
                                                     : reinterpret_cast<sockaddr_in&>(address.storage).sin_port);
}

[[noreturn]] void refuse(std::string_view text) {
  fail<UsageError>("{}: an address to listen on is unix:/PATH, ADDRESS:PORT or [IPV6]:PORT, in numbers", text);
}

}  // namespace

ListenAddress ListenAddress::parse(std::string_view text) {
  ListenAddress address;
  if (text.starts_with("unix:")) {
    address.socket = std::filesystem::path(text.substr(5)).lexically_normal();
    if (!address.socket.is_absolute() || !address.socket.has_filename() || text.find('\0') != text.npos) refuse(text);
    return address;
  }
  const auto colon = text.rfind(':');
  if (colon == text.npos) refuse(text);
  auto host = text.substr(0, colon);
  const auto port = text.substr(colon + 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  if (brackets != (host.find(':') != host.npos)) refuse(text);
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || socket_address(address.host, 0).length == 0)
    refuse(text);
  return address;
}

std::string ListenAddress::to_string() const {
  if (is_unix()) return "unix:" + socket.string();
  return fmt::format("{}{}{}:{}", host.find(':') == host.npos ? "" : "[", host, host.find(':') == host.npos ? "" : "]",
                     port);
}

bool ListenAddress::is_of_this_machine() const {
  if (is_unix()) return true;
  const auto address = socket_address(host, port);
  if (address.storage.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
  return address.length > 0 &&
         ntohl(reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr.s_addr) >> 24 == 127;
}

UniqueFd listen_on(ListenAddress& address) {
  if (address.is_unix()) {
    const auto kind = std::filesystem::symlink_status(address.socket).type();
    if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::socket)
      fail<UsageError>("{}: something else than a socket has that name", address.to_string());
    return listen_at(address.socket, SOCK_STREAM, kBacklog);
  }
  const auto where = socket_address(address.host, address.port);
  UniqueFd listener(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  // Connections of an earlier process that are not forgotten yet do not keep the next from listening.
  if (!listener || ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(listener.get(), where.get(), where.length) != 0 || ::listen(listener.get(), kBacklog) != 0)
    fail_errno("listen at {}", address.to_string());
  address.port = port_of(listener.get());
  return listener;
}

}  // namespace varve
