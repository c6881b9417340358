#include "fuse/session/user_namespace.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"

namespace varve::fuse {
namespace {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
  static Pipe make() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
};

// Absent at the end of the pipe.
bool read_byte(int fd) {
  char byte = 0;
  ssize_t got = 0;
  do got = ::read(fd, &byte, 1);
  while (got < 0 && errno == EINTR);
  return got == 1;
}

void write_proc_file(pid_t child, const char* name, const std::string& text) {
  const auto path = fmt::format("/proc/{}/{}", child, name);
  const auto file = open_file(path, O_WRONLY);
  write_all(file.get(), as_bytes(text), path);
}

void run_map_helper(const char* program, pid_t child, const IdMap& map) {
  std::vector<std::string> words = {find_program(program).string(), std::to_string(child)};
  for (const auto& range : map.ranges()) {
    words.push_back(std::to_string(range.inside));
    words.push_back(std::to_string(range.outside));
    words.push_back(std::to_string(range.count));
  }
  const auto helper =
      run_child({.words = std::move(words), .input = {}, .environment = {}, .shows_errors = true}, CancelFlag());
  if (helper.exit_status != 0)
    fail<Unsupported>("{} failed with status {}: see its message above, and /etc/subuid and /etc/subgid", program,
                      helper.exit_status);
}

void map_ids(pid_t child, const UserIds& ids) {
  if (ids.needs_helpers) {
    run_map_helper("newuidmap", child, ids.uids);
    run_map_helper("newgidmap", child, ids.gids);
    return;
  }
  if (ids.made_by_root) {
    write_proc_file(child, "uid_map", ids.uids.to_map_file());
    write_proc_file(child, "gid_map", ids.gids.to_map_file());
    return;
  }
  // Without privilege a group may be mapped only by who has given up dropping groups (user_namespaces(7)).
  write_proc_file(child, "setgroups", "deny");
  write_proc_file(child, "uid_map", ids.uids.to_map_file());
  write_proc_file(child, "gid_map", ids.gids.to_map_file());
}

int run_inside(const std::function<int()>& body, const UserIds& ids, Pipe& mapped) {
  try {
    mapped.write_end.reset();
    if (!ids.is_root) {
      if (!read_byte(mapped.read_end.get())) return 125;  // the parent says why
      become_root_inside(ids);
    }
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "varve: error: %s\n", error.what());
    return 125;
  }
}

}  // namespace

void become_root_inside(const UserIds& ids) {
  if (::syscall(SYS_setresgid, 0, 0, 0) != 0 || ::syscall(SYS_setresuid, 0, 0, 0) != 0)
    fail_errno("become root of the user namespace");
  if ((ids.needs_helpers || ids.made_by_root) && ::setgroups(0, nullptr) != 0) fail_errno("drop supplementary groups");
}

pid_t start_in_namespaces(int clone_flags, const UserIds& ids, const std::function<int()>& body) {
  auto mapped = Pipe::make();
  const unsigned long flags = static_cast<unsigned long>(clone_flags | (ids.is_root ? 0 : CLONE_NEWUSER) | SIGCHLD);
  std::fflush(nullptr);
  // clone(2) without a stack is fork(2) with namespaces; the library's fork() cannot make them, and unshare(2) would
  // move this process too.
  const auto child = pid_t(::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, 0UL));
  if (child < 0 && ids.made_by_root && (errno == EPERM || errno == ENOSPC))
    fail<Unsupported>(
        "this machine makes no user namespace for the session (sysctl user.max_user_namespaces): --userns host goes "
        "without one");
  if (child < 0 && !ids.is_root && (errno == EPERM || errno == ENOSPC))
    fail<Unsupported>(
        "this machine lets plain users make no user namespaces (sysctl user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone, an AppArmor rule, or a chroot): run as root");
  if (child < 0) fail_errno("start a process in new namespaces");
  if (child == 0) ::_exit(run_inside(body, ids, mapped));
  try {
    mapped.read_end.reset();
    if (!ids.is_root) {
      map_ids(child, ids);
      write_all(mapped.write_end.get(), as_bytes("m"), "the pipe of a new namespace");
    }
  } catch (...) {
    mapped.write_end.reset();
    wait_for(child);
    throw;
  }
  return child;
}

UniqueFd make_user_namespace(const UserIds& ids) {
  const auto child = start_in_namespaces(0, ids, [] { return ::pause(); });
  UniqueFd made(::open(fmt::format("/proc/{}/ns/user", child).c_str(), O_RDONLY | O_CLOEXEC));
  const int error = errno;
  ::kill(child, SIGKILL);
  wait_for(child);
  errno = error;
  if (!made) fail_errno("open the user namespace of a session");
  return made;
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail_errno("wait for process {}", child);
  return status;
}

int shell_status(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  return 128 + WTERMSIG(wait_status);
}

}  // namespace varve::fuse
