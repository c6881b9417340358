#include "core/http/peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace varve {
namespace {

std::string peer(const char* address) {
  sockaddr_storage storage{};
  auto& four = reinterpret_cast<sockaddr_in&>(storage);
  auto& six = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, address, &four.sin_addr) == 1)
    four.sin_family = AF_INET;
  else if (::inet_pton(AF_INET6, address, &six.sin6_addr) == 1)
    six.sin6_family = AF_INET6;
  else
    storage.ss_family = AF_UNIX;
  four.sin_port = htons(4711);
  return peer_of(reinterpret_cast<const sockaddr&>(storage));
}

TEST(PeerTest, IsAnAddressOrTheNetworkThatAMachineHasForItself) {
  EXPECT_EQ(peer("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(peer("::ffff:192.0.2.7"), "192.0.2.7") << "the same machine, as a socket for both sees it";
  EXPECT_EQ(peer("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(peer("2001:db8:1:2::ffff"), "2001:db8:1:2::/64");
  EXPECT_NE(peer("2001:db8:1:3::1"), peer("2001:db8:1:2::1"));
  EXPECT_EQ(peer("/run/varve.sock"), "");
}

}  // namespace
}  // namespace varve
