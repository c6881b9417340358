#pragma once
// Says something to a server and takes all that it answers, byte for byte.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/files/unique_fd.h"
#include "core/http/listen_address.h"

namespace varve::test {

inline UniqueFd connect_to(const ListenAddress& address) {
  sockaddr_storage to{};
  socklen_t length = sizeof(sockaddr_in);
  if (address.is_unix()) {
    auto& unix_address = reinterpret_cast<sockaddr_un&>(to);
    unix_address.sun_family = AF_UNIX;
    std::strncpy(unix_address.sun_path, address.socket.c_str(), sizeof unix_address.sun_path - 1);
    length = sizeof unix_address;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(to);
    four.sin_family = AF_INET;
    four.sin_port = htons(address.port);
    ::inet_pton(AF_INET, address.host.c_str(), &four.sin_addr);
  }
  UniqueFd socket(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length) != 0)
    throw std::runtime_error("connect to " + address.to_string() + ": " + std::strerror(errno));
  return socket;
}

inline void say(const UniqueFd& socket, std::string_view text) {
  while (!text.empty()) {
    const auto sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // it hung up: what it said is still to be read
    text.remove_prefix(std::size_t(sent));
  }
}

// Until it hangs up.
inline std::string hear(const UniqueFd& socket) {
  std::string answer;
  char piece[4096];
  for (ssize_t got = 0; (got = ::recv(socket.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, std::size_t(got));
  return answer;
}

inline std::string ask(const ListenAddress& address, std::string_view request) {
  const auto socket = connect_to(address);
  say(socket, request);
  return hear(socket);
}

// A request without a body; with the line and the headers of the answer.
inline std::string get(const ListenAddress& address, std::string_view path) {
  return ask(address, "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
}

}  // namespace varve::test
