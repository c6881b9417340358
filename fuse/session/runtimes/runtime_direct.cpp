#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/scratch_file.h"
#include "core/base/process/inherited.h"
#include "core/base/process/running_process.h"
#include "core/base/text/json_document.h"
#include "fuse/session/forked_process.h"
#include "fuse/session/runtimes/direct_entry.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/runtimes/seccomp_profile.h"
#include "fuse/session/session_mounts.h"
#include "fuse/session/signal_inbox.h"
#include "fuse/session/terminal.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

// The numbers of linux/capability.h for the names that bundle.h gives.
std::uint64_t capability_set(const std::vector<std::string>& names) {
  std::uint64_t set = 0;
  for (int number = 0; number < 64; ++number) {
    const auto one = default_capabilities(std::uint64_t(1) << number);
    if (!one.empty() && std::find(names.begin(), names.end(), one.front()) != names.end())
      set |= std::uint64_t(1) << number;
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

// One id is mapped and the image wants another: a second user namespace shows the same files and the same rights under
// that number.
void rename_root_to(const ImageUser& user) {
  ::prctl(PR_SET_DUMPABLE, 1);  // its own maps in /proc must be writable for it
  if (::unshare(CLONE_NEWUSER) != 0) fail_errno("make a user namespace for user {}", user.uid);
  const auto write_map = [](const char* path, const std::string& text) {
    const auto file = open_file(path, O_WRONLY);
    write_all(file.get(), as_bytes(text), path);
  };
  write_map("/proc/self/setgroups", "deny");
  write_map("/proc/self/uid_map", fmt::format("{} 0 1\n", user.uid));
  write_map("/proc/self/gid_map", fmt::format("{} 0 1\n", user.gid));
  ::prctl(PR_SET_DUMPABLE, 0);
}

void become(const SessionSpec& spec, bool one_id_mapped) {
  auto names = spec.capabilities;
  std::erase(names, "CAP_MKNOD");  // no device cgroup stands behind it here
  const auto held = capability_set(names);
  if (one_id_mapped && (spec.user.uid != 0 || spec.user.gid != 0)) {
    rename_root_to(spec.user);
    install_seccomp_filter();
    drop_bounding_set(held);
    return set_capabilities(spec.user.uid == 0 ? held : 0);
  }
  install_seccomp_filter();
  drop_bounding_set(held);
  // A user namespace with one id cannot change groups.
  if (!one_id_mapped && ::setgroups(spec.user.groups.size(), spec.user.groups.data()) != 0)
    fail_errno("set the groups of the session's user");
  if (::syscall(SYS_setresgid, spec.user.gid, spec.user.gid, spec.user.gid) != 0)
    fail_errno("become group {}", spec.user.gid);
  if (::syscall(SYS_setresuid, spec.user.uid, spec.user.uid, spec.user.uid) != 0)
    fail_errno("become user {}", spec.user.uid);
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

// Of its own: a session's programs would else search the caller's keyring, and each other's.
void leave_keyring() {
  if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS)
    fail_errno("make a keyring for the session");
}

// Nothing of the machine is open any more, so there is no folder but those of the session's root; the kernel is asked
// all the same.
void enter_working_dir(const std::string& folder) {
  if (::chdir(folder.c_str()) != 0) fail_errno("enter the working directory {}", folder);
  std::array<char, PATH_MAX> name{};
  if (::getcwd(name.data(), name.size()) == nullptr)
    fail_errno("the working directory {} is not below the session's root", folder);
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

// The first process of the session's PID namespace: collects orphans, hands signals and keys on, ends with the
// command's status.
class Init {
 public:
  Init(pid_t command, SignalInbox& inbox, SessionTerminal* terminal)
      : command_(command), inbox_(inbox), terminal_(terminal) {}

  int run() {
    for (const int number : {SIGTTIN, SIGTTOU})
      ::signal(number, SIG_IGN);  // of the caller's terminal, from the background
    for (;;) {
      wait();
      take_signals();
      if (const auto status = reap()) {
        if (terminal_ != nullptr) terminal_->drain();
        return *status;
      }
    }
  }

 private:
  void wait() {
    std::array<pollfd, 4> waits{};
    waits[0] = {.fd = inbox_.fd(), .events = POLLIN, .revents = 0};
    if (terminal_ == nullptr) {
      ::poll(waits.data(), 1, -1);
      return;
    }
    auto polls = terminal_->polls();
    std::ranges::copy(polls, waits.begin() + 1);
    ::poll(waits.data(), waits.size(), terminal_->paused() ? kBackgroundLookMs : -1);
    std::copy(waits.begin() + 1, waits.end(), polls.begin());
    if (terminal_->relay(polls)) ::kill(command_, SIGHUP);
  }

  void take_signals() {
    while (const auto signal = inbox_.next()) {
      if (signal->number == SIGCHLD) continue;
      if (signal->number == SIGWINCH && terminal_ != nullptr) {
        terminal_->take_size();
      } else if (!signal->from_kernel ||
                 terminal_ != nullptr) {  // the session's own terminal hears of none of the caller's
        ::kill(command_, signal->number);
      }
    }
  }

  std::optional<int> reap() const {
    int status = 0;
    if (!collect_children(command_, status)) return std::nullopt;
    return shell_status(status);
  }

  static constexpr int kBackgroundLookMs = 200;

  pid_t command_;
  SignalInbox& inbox_;
  SessionTerminal* terminal_;
};

constexpr std::uint64_t kMaxNamespacesBytes = 4096;
// What a command shares with its session, as it is called in /proc/PID/ns and in the order in which it is entered.
constexpr std::string_view kSharedNamespaces[] = {"user", "mnt", "ipc", "uts", "net", "pid"};

// Descriptors of the supervisor, by those names.
std::filesystem::path namespaces_file(const SessionFolder& folder) { return folder.runtime_state() / "namespaces"; }

int run_command(const SessionSpec& spec, bool one_id_mapped, const SessionTerminal* terminal, int ready_write,
                const PrepareChild& prepare_child) {
  try {
    if (terminal != nullptr) {
      terminal->enter(spec.user.uid);
    } else {
      ::setsid();
    }
    close_all_but(std::span(&ready_write, ready_write < 0 ? 0 : 1));
    leave_keyring();
    become(spec, one_id_mapped);
    enter_working_dir(spec.working_dir);
    prepare_child();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "varve: error: %s\n", error.what());
    return kOwnFailure;
  }
  if (ready_write >= 0 && ::write(ready_write, "r", 1) != 1) return kOwnFailure;
  return execute(spec);
}

// In the session's root and namespaces: runs the command and sees to it until it ends. Not to be looked into by
// processes of the session, from before this one is in their sight until it executes the command: what it has mapped is
// the machine's.
int serve_command(const SessionSpec& spec, bool one_id_mapped, SignalInbox& inbox, SessionTerminal* terminal,
                  int ready_write, const PrepareChild& prepare_child) {
  const auto command = ::fork();
  if (command < 0) fail_errno("start the command");
  if (command == 0) ::_exit(run_command(spec, one_id_mapped, terminal, ready_write, prepare_child));
  return Init(command, inbox, terminal).run();
}

class DirectRuntime final : public Runtime {
 public:
  explicit DirectRuntime(bool one_id_mapped) : one_id_mapped_(one_id_mapped) {}

  std::string name() const override { return "none"; }

  pid_t start(const SessionSpec& spec, const SessionFolder& folder, const PrepareChild& prepare_child) override {
    std::array<int, 2> ends{};
    std::array<int, 2> go{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0 || ::pipe2(go.data(), O_CLOEXEC) != 0)
      fail_errno("make a pipe");
    ready_.reset(ends[0]);
    const UniqueFd ready_write(ends[1]);
    const UniqueFd go_read(go[0]);
    UniqueFd go_write(go[1]);
    const int flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | (spec.own_network ? CLONE_NEWNET : 0);
    process_ = start_in_namespaces(flags, spec.own_ids, [&] {
      go_write.reset();
      char byte = 0;
      if (::read(go_read.get(), &byte, 1) != 1) return kOwnFailure;
      return run_inside(spec, ready_write.get(), prepare_child);
    });
    write_scratch_file(folder.bundle() / "config.json", as_bytes(to_config_json(spec)), 0600);
    keep_namespaces(folder);
    write_all(go_write.get(), as_bytes("g"), "the pipe of the session's first process");
    return process_;
  }

  pollfd ready_poll() const override { return {.fd = ready_.get(), .events = POLLIN, .revents = 0}; }
  bool ready() override {
    char byte = 0;
    return ::read(ready_.get(), &byte, 1) == 1;
  }
  pid_t signal_target() override { return process_; }
  Failure failure(int wait_status) override {
    return {.reason = fmt::format("ended with status {}; its own message is above", shell_status(wait_status)),
            .told = WIFEXITED(wait_status)};
  }

 private:
  int run_inside(const SessionSpec& spec, int ready_write, const PrepareChild& prepare_child) const {
    SignalInbox inbox;  // these were blocked by the supervisor already, and stay so
    if (::sethostname(spec.hostname.data(), spec.hostname.size()) != 0)
      fail_errno("set the host name {}", spec.hostname);
    if (spec.own_network) bring_loopback_up();
    ::prctl(PR_SET_DUMPABLE, 0);
    enter_session_root(spec);
    close_all_but(std::array{inbox.fd(), ready_write});
    std::optional<SessionTerminal> terminal;
    if (spec.terminal) add_console(terminal.emplace().name());
    return serve_command(spec, one_id_mapped_, inbox, terminal ? &*terminal : nullptr, ready_write, prepare_child);
  }

  // Held open here for DirectEntry: as soon as the first process has hidden itself from the session's other ones, a
  // plain user finds them nowhere else.
  void keep_namespaces(const SessionFolder& folder) {
    nlohmann::json numbers;
    for (const auto name : kSharedNamespaces) {
      namespaces_.push_back(open_file(fmt::format("/proc/{}/ns/{}", process_, name), O_RDONLY));
      numbers[std::string(name)] = namespaces_.back().get();
    }
    write_scratch_file(namespaces_file(folder), as_bytes(numbers.dump()), 0600);
  }

  bool one_id_mapped_;
  UniqueFd ready_;
  std::vector<UniqueFd> namespaces_;
  pid_t process_ = 0;
};

}  // namespace

UniqueFd root_of(pid_t process) { return open_file(fmt::format("/proc/{}/root", process), O_PATH | O_DIRECTORY); }

void enter_root(const UniqueFd& root) {
  if (::fchdir(root.get()) != 0 || ::chroot(".") != 0) fail_errno("enter the root of a session");
}

// Of the child that is in this mount namespace: the session's first process. Others hand on its streams.
static UniqueFd root_in(const struct stat& mounts, const std::vector<pid_t>& children) {
  for (const auto child : children) {
    struct stat status {};
    if (::stat(fmt::format("/proc/{}/ns/mnt", child).c_str(), &status) == 0 && status.st_ino == mounts.st_ino)
      return root_of(child);
  }
  fail<Error>("the session's first process has ended");
}

DirectEntry::DirectEntry(const SessionFolder& folder, pid_t supervisor) {
  const auto file = namespaces_file(folder);
  const auto numbers = JsonValue::parse(read_file(file, kMaxNamespacesBytes), file.string());
  for (const auto name : kSharedNamespaces) {
    auto wanted = open_file(fmt::format("/proc/{}/fd/{}", supervisor, numbers[name].number<int>(0)), O_RDONLY);
    struct stat own {};
    struct stat status {};
    if (::stat(fmt::format("/proc/self/ns/{}", name).c_str(), &own) != 0 || ::fstat(wanted.get(), &status) != 0)
      fail_errno("compare the session's {} namespace with ours", name);
    // One that is this process's already, such as the machine's network, need not be entered, nor may it be.
    if (name == "mnt" && ::geteuid() == 0) root_ = root_in(status, children_of(supervisor));
    if (own.st_ino != status.st_ino) namespaces_.emplace_back(name, std::move(wanted));
  }
}

void DirectEntry::enter(const UserIds& ids) const {
  ::prctl(PR_SET_DUMPABLE, 0);  // its children are seen by the session's processes
  for (const auto& [name, wanted] : namespaces_) {
    if (::setns(wanted.get(), 0) != 0) fail_errno("enter the session's {} namespace", name);
    if (name == "user") become_root_inside(ids);
    if (name == "mnt" && root_) enter_root(root_);
  }
}

int DirectEntry::run(const SessionSpec& spec, bool one_id_mapped, const SignalInbox& outer) {
  SignalInbox inbox(&outer);
  close_all_but(std::array{inbox.fd()});
  std::optional<SessionTerminal> terminal;
  if (spec.terminal) terminal.emplace();
  return serve_command(spec, one_id_mapped, inbox, terminal ? &*terminal : nullptr, -1,
                       [&outer] { outer.restore_mask(); });
}

std::unique_ptr<Runtime> make_direct_runtime(bool one_id_mapped) {
  return std::make_unique<DirectRuntime>(one_id_mapped);
}

}  // namespace varve::fuse
