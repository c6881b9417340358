#include "fuse/mount/fuse_mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"
#include "core/base/text/strings.h"
#include "fuse/mount/mount_child.h"
#include "fuse/mount/pass_fd.h"

namespace varve::fuse {
namespace {

constexpr const char* kDevice = "/dev/fuse";
constexpr const char* kHelper = "fusermount3";

// Commas and backslashes end an option unless they are escaped.
std::string escape_option(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void set_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) fail_errno("make {} non-blocking", kDevice);
}

FuseMount mount_directly(const FuseMountRequest& request) {
  auto fd = open_file(kDevice, O_RDWR);
  struct ::stat status {};
  if (::stat(request.dir.c_str(), &status) != 0) fail_errno("look at {}", request.dir.string());
  auto options = fmt::format("fd={},rootmode={:o},user_id={},group_id={},allow_other,max_read={}", fd.get(),
                             status.st_mode & S_IFMT, ::geteuid(), ::getegid(), request.max_read_bytes);
  if (request.check_permissions) options += ",default_permissions";
  const auto type = "fuse." + request.subtype;
  if (::mount(request.source.c_str(), request.dir.c_str(), type.c_str(), MS_RDONLY | MS_NOSUID | MS_NODEV,
              options.c_str()) != 0)
    fail_errno("mount a FUSE file system at {}", request.dir.string());
  return {.fd = std::move(fd), .by_helper = false};
}

// Runs the helper with `socket` (if any) as descriptor 3.
ChildResult run_helper(std::vector<std::string> words, int socket) {
  auto environment = own_environment();
  environment.push_back("_FUSE_COMMFD=3");
  auto result =
      run_child({.words = std::move(words), .input = {}, .environment = std::move(environment), .passed_fd = socket},
                CancelFlag());
  if (result.exit_status == 127) fail<Unsupported>("run {} (package fuse3): {}", kHelper, trimmed(result.err));
  return result;
}

FuseMount mount_by_helper(const FuseMountRequest& request) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail_errno("make a socket for {}", kHelper);
  const UniqueFd ours(sockets[0]);
  UniqueFd theirs(sockets[1]);
  auto options = fmt::format("ro,nosuid,nodev,max_read={},fsname={},subtype={}", request.max_read_bytes,
                             escape_option(request.source), request.subtype);
  if (request.check_permissions) options += ",default_permissions";
  const auto result = run_helper({kHelper, "-o", options, "--", request.dir.string()}, theirs.get());
  theirs.reset();
  auto received = receive_with_fd(ours.get(), 1);  // the helper sends the descriptor of its mount beside a byte
  auto fd = received ? std::move(received->fd) : UniqueFd();
  if (result.exit_status != 0 || !fd)
    fail<Unsupported>("cannot mount at {}: {}", request.dir.string(), trimmed(result.err));
  return {.fd = std::move(fd), .by_helper = true};
}

}  // namespace

bool may_mount() { return ::geteuid() == 0; }

bool in_initial_user_namespace() {
  // The initial namespace maps everything onto itself.
  const auto map = read_file_if_there("/proc/self/uid_map");
  if (!map) return true;
  unsigned long long inside = 0, outside = 0, count = 0;
  const std::string text(as_text(*map));
  return std::sscanf(text.c_str(), "%llu %llu %llu", &inside, &outside, &count) == 3 && inside == 0 && outside == 0 &&
         count == 4294967295ull;
}

FuseMount mount_fuse(const FuseMountRequest& request) {
  if (::access(kDevice, F_OK) != 0)
    fail<Unsupported>("cannot mount at {}: this machine has no {} (kernel module fuse)", request.dir.string(), kDevice);
  if (::access(kDevice, R_OK | W_OK) != 0)
    fail<Unsupported>(
        "cannot mount at {}: {} may not be opened by this user: {}; let root do `chmod 666 {}`, as distributions do, or "
        "run Varve as root",
        request.dir.string(), kDevice, std::generic_category().message(errno), kDevice);
  auto mounted = may_mount() ? mount_directly(request) : mount_by_helper(request);
  set_non_blocking(mounted.fd.get());
  return mounted;
}

void unmount_dir(const std::filesystem::path& dir, bool detach, bool by_helper) {
  if (!by_helper) {
    // The kernel waits there for reads under way, which a daemon answers: this one, or the one after its death.
    const int flags = UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0);
    errno = MountChild({}, [&, path = dir.c_str()] { return ::umount2(path, flags) == 0 ? 0 : errno; }).wait();
    if (errno == 0 || errno == EINVAL || errno == ENOENT) return;
    fail_errno("unmount {}", dir.string());
  }
  std::vector<std::string> words{kHelper, "-u", "-q"};
  if (detach) words.emplace_back("-z");
  words.insert(words.end(), {"--", dir.string()});
  const auto result = run_helper(words, -1);
  if (result.exit_status == 0) return;
  errno = EBUSY;  // the helper gives no other reason that we could cause
  fail_errno("unmount {}{}{}", dir.string(), result.err.empty() ? "" : ": ", trimmed(result.err));
}

}  // namespace varve::fuse
