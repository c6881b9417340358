#include "core/http/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace varve {
namespace {

constexpr std::size_t kHostBytes = 8;      // of an IPv6 address: which one of its network
constexpr std::size_t kMappedPrefix = 12;  // before the IPv4 address in ::ffff:192.0.2.7

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return ::inet_ntop(family, address, text.data(), text.size()) == nullptr ? "" : text.data();
}

}  // namespace

std::string peer_of(const sockaddr& address) {
  if (address.sa_family == AF_INET) return text_of(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  if (address.sa_family != AF_INET6) return {};
  auto six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&six)) return text_of(AF_INET, six.s6_addr + kMappedPrefix);
  std::memset(six.s6_addr + sizeof six - kHostBytes, 0, kHostBytes);
  return text_of(AF_INET6, &six) + "/64";
}

}  // namespace varve
