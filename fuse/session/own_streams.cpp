#include "fuse/session/own_streams.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "core/base/unique_fd.h"

namespace varve::fuse {
namespace {

constexpr const char* kName = "device";

// At no folder: it lives as long as the stream.
UniqueFd make_private_tmpfs() {
  const UniqueFd context(::fsopen("tmpfs", FSOPEN_CLOEXEC));
  if (!context || ::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    fail_errno("make a file system for the session's standard streams");
  UniqueFd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  if (!mount) fail_errno("mount a file system for the session's standard streams");
  return mount;
}

}  // namespace

void take_own_device_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    struct stat status {};
    if (::fstat(stream, &status) != 0 || !S_ISCHR(status.st_mode) || ::isatty(stream) != 0) continue;
    const auto folder = make_private_tmpfs();
    // Read and write for all, whatever umask says: the command may be anybody.
    if (::mknodat(folder.get(), kName, S_IFCHR | 0666, status.st_rdev) != 0 ||
        ::fchmodat(folder.get(), kName, 0666, 0) != 0)
      fail_errno("make a device for the session's standard stream {}", stream);
    const UniqueFd own(::openat(folder.get(), kName, (::fcntl(stream, F_GETFL) & O_ACCMODE) | O_NOCTTY | O_CLOEXEC));
    if (!own || ::dup2(own.get(), stream) < 0) fail_errno("open the session's standard stream {}", stream);
  }
}

}  // namespace varve::fuse
