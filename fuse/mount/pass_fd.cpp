#include "fuse/mount/pass_fd.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/errors.h"

namespace varve::fuse {

void send_with_fd(int socket, ByteView bytes, int fd) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec data{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) fail_errno("send a message of {} bytes over a socket", bytes.size());
  if (static_cast<std::size_t>(sent) != bytes.size()) {
    errno = EMSGSIZE;
    fail_errno("send a message of {} bytes over a socket", bytes.size());
  }
}

std::optional<ReceivedMessage> receive_with_fd(int socket, std::size_t limit_bytes) {
  constexpr std::size_t kMostFds = 8;  // room for more than one, so that what should not have come can be closed
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control{};
  ReceivedMessage received;
  received.bytes.resize(limit_bytes);
  iovec data{.iov_base = received.bytes.data(), .iov_len = received.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) fail_errno("receive a message over a socket");
  for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      if (received.fd) received.cut_short = true;
      received.fd.reset(fd);
    }
  }
  if (got == 0 && !received.fd) return std::nullopt;
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) received.cut_short = true;
  received.bytes.resize(static_cast<std::size_t>(got));
  return received;
}

}  // namespace varve::fuse
