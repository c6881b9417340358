#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "fuse/runtime.h"
#include "fuse/session_mounts.h"
#include "fuse/signal_inbox.h"
#include "fuse/user_namespace.h"

namespace varve::fuse {
namespace {

// The numbers of linux/capability.h for the names that bundle.h gives.
std::uint64_t capability_set(const std::vector<std::string>& names) {
  std::uint64_t set = 0;
  for (int number = 0; number < 64; ++number) {
    const auto one = default_capabilities(std::uint64_t(1) << number);
    if (!one.empty() && std::find(names.begin(), names.end(), one.front()) != names.end()) set |= std::uint64_t(1) << number;
  }
  return set;
}

void drop_bounding_set(std::uint64_t keep) {
  for (int number = 0; ::prctl(PR_CAPBSET_READ, number) >= 0; ++number)
    if ((keep >> number & 1) == 0 && ::prctl(PR_CAPBSET_DROP, number) != 0) fail_errno("drop capability {}", number);
}

void set_capabilities(std::uint64_t held) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  data[0].effective = data[0].permitted = std::uint32_t(held);
  data[1].effective = data[1].permitted = std::uint32_t(held >> 32);
  if (::syscall(SYS_capset, &header, data.data()) != 0) fail_errno("set capabilities");
}

// One id is mapped and the image wants another: a second user namespace shows the same files and the same rights under that number.
void rename_root_to(const ImageUser& user) {
  if (::unshare(CLONE_NEWUSER) != 0) fail_errno("make a user namespace for user {}", user.uid);
  const auto write_map = [](const char* path, const std::string& text) {
    const auto file = open_file(path, O_WRONLY);
    write_all(file.get(), as_bytes(text), path);
  };
  write_map("/proc/self/setgroups", "deny");
  write_map("/proc/self/uid_map", fmt::format("{} 0 1\n", user.uid));
  write_map("/proc/self/gid_map", fmt::format("{} 0 1\n", user.gid));
}

void become(const SessionSpec& spec, bool one_id_mapped) {
  const auto held = capability_set(spec.capabilities);
  if (one_id_mapped && (spec.user.uid != 0 || spec.user.gid != 0)) {
    rename_root_to(spec.user);
    drop_bounding_set(held);
    return set_capabilities(spec.user.uid == 0 ? held : 0);
  }
  drop_bounding_set(held);
  // A user namespace with one id cannot change groups.
  if (!one_id_mapped && ::setgroups(spec.user.groups.size(), spec.user.groups.data()) != 0) fail_errno("set the groups of the session's user");
  if (::syscall(SYS_setresgid, spec.user.gid, spec.user.gid, spec.user.gid) != 0) fail_errno("become group {}", spec.user.gid);
  if (::syscall(SYS_setresuid, spec.user.uid, spec.user.uid, spec.user.uid) != 0) fail_errno("become user {}", spec.user.uid);
  set_capabilities(spec.user.uid == 0 ? held : 0);
}

// netdevice(7). A new network namespace has the device, switched off.
void bring_loopback_up() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (!socket || ::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) fail_errno("find the session's loopback");
  request.ifr_flags = short(request.ifr_flags | IFF_UP);
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) fail_errno("bring up the session's loopback");
}

// Only returns if the command could not be executed: kNotFound or kNotExecutable, told on stderr.
int execute(const SessionSpec& spec) {
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const auto& word : spec.args) argv.push_back(const_cast<char*>(word.c_str()));
  for (const auto& one : spec.env) envp.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  std::string path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const auto& one : spec.env)
    if (one.starts_with("PATH=")) path = one.substr(5);
  ::setenv("PATH", path.c_str(), 1);  // where execvpe() looks
  ::execvpe(argv[0], argv.data(), envp.data());
  const int error = errno;
  std::fprintf(stderr, "varve: error: execute %s: %s\n", argv[0], std::system_category().message(error).c_str());
  return error == ENOENT ? kNotFound : kNotExecutable;
}

// The first process of the session's PID namespace: collects orphans, hands signals on, ends with the command's status.
int be_init(pid_t command, SignalInbox& inbox) {
  for (;;) {
    pollfd wait = {.fd = inbox.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, -1);
    while (const auto signal = inbox.next())
      if (signal->number != SIGCHLD && !signal->from_kernel) ::kill(command, signal->number);
    int status = 0;
    for (pid_t gone = ::waitpid(-1, &status, WNOHANG); gone > 0; gone = ::waitpid(-1, &status, WNOHANG))
      if (gone == command) return shell_status(status);
  }
}

class DirectRuntime final : public Runtime {
 public:
  explicit DirectRuntime(bool one_id_mapped) : one_id_mapped_(one_id_mapped) {}

  std::string name() const override { return "none"; }

  pid_t start(const SessionSpec& spec, const SessionFolder&, const PrepareChild& prepare_child) override {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail_errno("make a pipe");
    ready_.reset(ends[0]);
    const UniqueFd ready_write(ends[1]);
    const int flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | (spec.own_network ? CLONE_NEWNET : 0);
    process_ = start_in_namespaces(flags, UserIds{}, [&] { return run_inside(spec, ready_write.get(), prepare_child); });
    return process_;
  }

  pollfd ready_poll() const override { return {.fd = ready_.get(), .events = POLLIN, .revents = 0}; }
  bool ready() override {
    char byte = 0;
    return ::read(ready_.get(), &byte, 1) == 1;
  }
  pid_t signal_target() override { return process_; }
  Failure failure(int wait_status) override {
    return {.status = 0, .reason = fmt::format("ended with status {}; its own message is above", shell_status(wait_status))};
  }

 private:
  int run_inside(const SessionSpec& spec, int ready_write, const PrepareChild& prepare_child) const {
    SignalInbox inbox;  // these were blocked by the supervisor already, and stay so
    if (::sethostname(spec.hostname.data(), spec.hostname.size()) != 0) fail_errno("set the host name {}", spec.hostname);
    if (spec.own_network) bring_loopback_up();
    ::prctl(PR_SET_DUMPABLE, 0);
    enter_session_root(spec);
    const auto command = ::fork();
    if (command < 0) fail_errno("start the command");
    if (command == 0) ::_exit(run_command(spec, ready_write, prepare_child));
    return be_init(command, inbox);
  }

  int run_command(const SessionSpec& spec, int ready_write, const PrepareChild& prepare_child) const {
    try {
      ::prctl(PR_SET_DUMPABLE, 1);  // its own maps in /proc must be writable for it
      if (!spec.terminal) ::setsid();
      become(spec, one_id_mapped_);
      if (::chdir(spec.working_dir.c_str()) != 0) fail_errno("enter the working directory {}", spec.working_dir);
      prepare_child();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "varve: error: %s\n", error.what());
      return kOwnFailure;
    }
    if (::write(ready_write, "r", 1) != 1) return kOwnFailure;
    return execute(spec);
  }

  bool one_id_mapped_;
  UniqueFd ready_;
  pid_t process_ = 0;
};

}  // namespace

std::unique_ptr<Runtime> make_direct_runtime(bool one_id_mapped) { return std::make_unique<DirectRuntime>(one_id_mapped); }

}  // namespace varve::fuse
