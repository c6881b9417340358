#pragma once
// Sockets of this machine, named by a path.
#include <filesystem>
#include <string_view>

#include "core/base/files/unique_fd.h"

namespace varve {

// `type`: SOCK_STREAM or SOCK_SEQPACKET. Close-on-exec.
UniqueFd make_unix_socket(int type);
// False when nobody listens there; `whom` is for errors. Throws UsageError for a path that is too long for a socket.
bool connect_unix_socket(const UniqueFd& socket, const std::filesystem::path& path, std::string_view whom);
// Open to this user alone. Takes the place of one of a process that has ended: the caller holds a lock.
UniqueFd listen_at(const std::filesystem::path& path, int type, int backlog);

}  // namespace varve
