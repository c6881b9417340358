#pragma once
// Mounting and unmounting of FUSE file systems, as root by mount(2) and as a plain user by fusermount3.
#include <filesystem>
#include <string>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

struct FuseMountRequest {
  std::filesystem::path dir;
  std::string source;
  std::string subtype;
  bool check_permissions = true;
  std::size_t max_read_bytes = 0;
};

struct FuseMount {
  UniqueFd fd;             // of /dev/fuse, non-blocking
  bool by_helper = false;  // by fusermount3
};

// Read-only, nosuid, nodev. As root visible to everybody. Throws with what to do when /dev/fuse or fusermount3 is
// missing.
FuseMount mount_fuse(const FuseMountRequest& request);

// umount(2), or fusermount3 for what it mounted. Throws std::system_error (EBUSY: in use). Not mounted (any more) is no
// error.
void unmount_dir(const std::filesystem::path& dir, bool detach, bool by_helper);

// True if this process may call mount(2): root, in whatever user namespace.
bool may_mount();
// True if user numbers here are those of the machine.
bool in_initial_user_namespace();

}  // namespace varve::fuse
