#include "fuse/daemon/keeper_protocol.h"

#include "core/base/errors.h"
#include "fuse/mount/pass_fd.h"

namespace varve::fuse {
namespace {

constexpr std::string_view kMagic = "VKPR";
constexpr std::size_t kHeaderBytes = 12;  // magic, version, kind, length of the name (2), length of the body (4)

}  // namespace

Bytes encode(const KeeperMessage& message) {
  if (message.name.size() > kMaxKeptNameBytes)
    fail<UsageError>("the name of a kept descriptor has {} bytes, at most {}", message.name.size(), kMaxKeptNameBytes);
  if (kHeaderBytes + message.name.size() + message.body.size() > kMaxKeeperMessageBytes)
    fail<UsageError>("a message to the keeper has more than {} bytes", kMaxKeeperMessageBytes);
  Bytes bytes = to_bytes(as_bytes(kMagic));
  append_le(bytes, kKeeperVersion);
  append_le(bytes, static_cast<std::uint8_t>(message.kind));
  append_le(bytes, static_cast<std::uint16_t>(message.name.size()));
  append_le(bytes, static_cast<std::uint32_t>(message.body.size()));
  append(bytes, as_bytes(message.name));
  append(bytes, as_bytes(message.body));
  return bytes;
}

KeeperMessage decode_keeper_message(ByteView bytes) {
  if (bytes.size() < kHeaderBytes || as_text(bytes.first(kMagic.size())) != kMagic)
    fail<CorruptData>("keeper: a message of {} bytes that is none", bytes.size());
  const auto version = load_le<std::uint8_t>(bytes.data() + 4);
  if (version != kKeeperVersion)
    fail<Unsupported>("keeper: a message of version {}, known is {}", version, kKeeperVersion);
  const auto kind = load_le<std::uint8_t>(bytes.data() + 5);
  if (kind < static_cast<std::uint8_t>(KeeperMessage::Kind::kHello) ||
      kind > static_cast<std::uint8_t>(KeeperMessage::Kind::kRefused))
    fail<CorruptData>("keeper: a message of the unknown kind {}", kind);
  const std::size_t name_bytes = load_le<std::uint16_t>(bytes.data() + 6);
  const std::size_t body_bytes = load_le<std::uint32_t>(bytes.data() + 8);
  if (name_bytes > kMaxKeptNameBytes || name_bytes + body_bytes != bytes.size() - kHeaderBytes)
    fail<CorruptData>("keeper: a message whose lengths do not fit");
  const auto text = as_text(bytes.subspan(kHeaderBytes));
  return {.kind = static_cast<KeeperMessage::Kind>(kind),
          .name = std::string(text.substr(0, name_bytes)),
          .body = std::string(text.substr(name_bytes))};
}

void send_message(int socket, const KeeperMessage& message, int fd) { send_with_fd(socket, encode(message), fd); }

std::optional<KeeperDelivery> receive_message(int socket) {
  auto received = receive_with_fd(socket, kMaxKeeperMessageBytes);
  if (!received) return std::nullopt;
  if (received->cut_short) fail<CorruptData>("keeper: a message beyond the limits");
  return KeeperDelivery{.message = decode_keeper_message(received->bytes), .fd = std::move(received->fd)};
}

}  // namespace varve::fuse
