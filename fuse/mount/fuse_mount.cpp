#include "fuse/mount/fuse_mount.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "fuse/mount/pass_fd.h"

extern char** environ;  // NOLINT: POSIX has no header for it

namespace varve::fuse {
namespace {

constexpr const char* kDevice = "/dev/fuse";
constexpr const char* kHelper = "fusermount3";
constexpr int kHelperSocket = 3;  // as the helper sees it

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

struct HelperResult {
  int exit_status = 0;
  std::string complaint;
};

// Runs the helper with `socket` (if any) as descriptor 3 and what it says on stderr gathered.
HelperResult run_helper(const std::vector<std::string>& words, int socket) {
  int complaints[2];
  if (::pipe2(complaints, O_CLOEXEC) != 0) fail_errno("make a pipe for {}", kHelper);
  const UniqueFd read_end(complaints[0]);
  UniqueFd write_end(complaints[1]);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const auto comm_fd = fmt::format("_FUSE_COMMFD={}", kHelperSocket);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
  environment.push_back(const_cast<char*>(comm_fd.c_str()));
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  if (socket >= 0) ::posix_spawn_file_actions_adddup2(&actions, socket, kHelperSocket);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, kHelper, &actions, nullptr, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    errno = error;
    fail_errno("run {} (package fuse3)", kHelper);
  }
  write_end.reset();
  HelperResult result;
  std::array<char, 512> buffer;
  for (ssize_t n = 0; (n = ::read(read_end.get(), buffer.data(), buffer.size())) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) result.complaint.append(buffer.data(), static_cast<std::size_t>(n));
  while (!result.complaint.empty() && result.complaint.back() == '\n') result.complaint.pop_back();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
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
    fail<Unsupported>("cannot mount at {}: {}", request.dir.string(), result.complaint);
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
  auto mounted = may_mount() ? mount_directly(request) : mount_by_helper(request);
  set_non_blocking(mounted.fd.get());
  return mounted;
}

void unmount_dir(const std::filesystem::path& dir, bool detach, bool by_helper) {
  if (!by_helper) {
    const int flags = UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0);
    if (::umount2(dir.c_str(), flags) == 0 || errno == EINVAL || errno == ENOENT) return;
    fail_errno("unmount {}", dir.string());
  }
  std::vector<std::string> words{kHelper, "-u", "-q"};
  if (detach) words.emplace_back("-z");
  words.insert(words.end(), {"--", dir.string()});
  const auto result = run_helper(words, -1);
  if (result.exit_status == 0) return;
  errno = EBUSY;  // the helper gives no other reason that we could cause
  fail_errno("unmount {}{}{}", dir.string(), result.complaint.empty() ? "" : ": ", result.complaint);
}

}  // namespace varve::fuse
