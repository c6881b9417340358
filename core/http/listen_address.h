#pragma once
// Where a server listens.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/files/unique_fd.h"

namespace varve {

// A value. Either `socket` or `host` and `port` count.
struct ListenAddress {
  std::filesystem::path socket;  // of this machine; absolute
  std::string host;              // an IPv4 or IPv6 address in numbers
  std::uint16_t port = 0;        // 0: the system chooses one

  // "unix:/PATH", "127.0.0.1:9100", "[::1]:9100", "0.0.0.0:8080", "localhost:9100" (127.0.0.1). Throws UsageError for
  // anything else, names of hosts included.
  static ListenAddress parse(std::string_view text);
  std::string to_string() const;
  bool is_unix() const { return !socket.empty(); }
  // Nobody beyond this machine can connect: a socket, 127.0.0.0/8 or ::1.
  bool is_of_this_machine() const;
};

// Listens; a unix socket is open to this user alone, and takes the place of one that a process left behind.
// `address.port` becomes the one that was chosen. Throws UsageError if something else than a socket has the path,
// std::system_error naming the address.
UniqueFd listen_on(ListenAddress& address);

}  // namespace varve
