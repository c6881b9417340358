#pragma once
// Who is at the other end of a connection.
#include <sys/socket.h>

#include <string>

namespace varve {

// By its address, without the port: "192.0.2.7". Of IPv6 by its network, "2001:db8::/64", as one machine has all
// addresses of that. "" at a unix socket, where nobody has an address.
std::string peer_of(const sockaddr& address);

}  // namespace varve
