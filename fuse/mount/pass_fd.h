#pragma once
// Descriptors over Unix sockets (unix(7), SCM_RIGHTS).
#include <optional>

#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Sends the bytes, at least one, in one sendmsg(2), with `fd` beside them if it is not -1. Throws std::system_error;
// EPIPE if the other side has gone.
void send_with_fd(int socket, ByteView bytes, int fd);

struct ReceivedMessage {
  Bytes bytes;
  UniqueFd fd;             // close-on-exec; none if none came
  bool cut_short = false;  // the message was longer than `limit_bytes`, or more than one descriptor came with it
};
// One recvmsg(2). Absent when the other side has closed. Throws std::system_error.
std::optional<ReceivedMessage> receive_with_fd(int socket, std::size_t limit_bytes);

}  // namespace varve::fuse
