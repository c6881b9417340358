#pragma once
// What goes between a daemon and its keeper: one message a datagram of a SOCK_SEQPACKET socket, a descriptor beside it
// where one is kept or given back. The byte layout is docs/formats/daemon.md "Messages". A keeper may be older or
// younger than the daemon it serves, so the version is in every message.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"

namespace varve::fuse {

inline constexpr std::uint8_t kKeeperVersion = 1;
inline constexpr std::size_t kMaxKeptNameBytes = 200;
inline constexpr std::size_t kMaxKeptDescriptors = 512;  // half of what a process may commonly open
inline constexpr std::size_t kMaxKeeperMessageBytes = 64 * 1024;

struct KeeperMessage {
  enum class Kind : std::uint8_t {
    kHello = 1,      // a daemon; body: the words that start it again, each ended by a NUL
    kStore = 2,      // name, and the descriptor to keep under it; another one of that name is closed
    kRemove = 3,     // name; it need not be there
    kTake = 4,       // all that is kept, please: any number of kEntry and then kDone; they stay kept
    kSuccessor = 5,  // this process ends without a goodbye, because another program takes its place
    kGoodbye = 6,    // the daemon ends in order: close everything and end
    kEntry = 7,      // name and descriptor
    kDone = 8,       // carried out; body: to a hello, the number of the keeper's process
    kRefused = 9,    // body: why
  };
  Kind kind = Kind::kDone;
  std::string name;
  std::string body;
  bool operator==(const KeeperMessage&) const = default;
};

// Throws UsageError for a name or body beyond the limits.
Bytes encode(const KeeperMessage& message);
// Throws Unsupported for another version and CorruptData for what is none.
KeeperMessage decode_keeper_message(ByteView bytes);

struct KeeperDelivery {
  KeeperMessage message;
  UniqueFd fd;
};
void send_message(int socket, const KeeperMessage& message, int fd = -1);
// Absent when the other side has closed. Throws what decode_keeper_message() and receive_with_fd() throw.
std::optional<KeeperDelivery> receive_message(int socket);

}  // namespace varve::fuse
