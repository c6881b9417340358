#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/scratch_file.h"
#include "core/base/process/child_process.h"
#include "core/base/process/running_process.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/user_namespace.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxLogBytes = 1 << 20;
constexpr std::size_t kMaxHookBytes = 1 << 20;
constexpr int kLookAtOrphansMs = 2;

// The first process of the session's PID namespace. It only waits: the command is then not process 1 itself, for which
// signals without a handler do nothing and which nobody expects to collect orphans.
int be_init(bool in_user_namespace) {
  // Nothing of the machine is to be seen through its /proc entry. In a user namespace this would hide the entry from
  // the runtime too; there the command's fewer capabilities keep it out.
  if (!in_user_namespace) ::prctl(PR_SET_DUMPABLE, 0);
  ::prctl(PR_SET_NAME, "varve-init");
  ::setsid();
  ::close_range(0, ~0U, 0);
  if (::chdir("/") != 0) return kOwnFailure;
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  for (;;) {
    int number = 0;
    ::sigwait(&children, &number);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
}

class OciRuntime : public Runtime {
 public:
  OciRuntime(std::string name, std::filesystem::path program) : name_(std::move(name)), program_(std::move(program)) {}
  ~OciRuntime() override { end_init(); }

  std::string name() const override { return name_; }

  pid_t start(const SessionSpec& given, const SessionFolder& folder, const PrepareChild& prepare_child) override {
    auto spec = given;
    log_file_ = folder.dir / (name_ + ".log");
    std::filesystem::remove(log_file_);
    open_fifo(folder.ready_fifo());
    spec.ready_fifo = folder.ready_fifo();
    // In the session's own user namespace, if it has one: only there may its root mount the /proc of this PID
    // namespace.
    const bool of_a_plain_user = spec.in_user_namespace && spec.own_ids.is_root;
    init_ = start_in_namespaces(CLONE_NEWPID, spec.own_ids, [of_a_plain_user] { return be_init(of_a_plain_user); });
    spec.pid_namespace = fmt::format("/proc/{}/ns/pid", init_);
    if (!spec.own_ids.is_root) spec.user_namespace = fmt::format("/proc/{}/ns/user", init_);
    write_scratch_file(folder.bundle() / "config.json", as_bytes(to_config_json(spec)), 0600);
    std::filesystem::create_directories(folder.runtime_state());
    prepare_machine();
    auto words = runtime_words(name_, program_, folder.runtime_state(), log_file_);
    words.insert(words.end(), {"run", "--bundle", folder.bundle().string(), container_id(spec.id)});
    process_ = start_program(words, own_environment(), {}, prepare_child);
    return process_;
  }

  pollfd ready_poll() const override { return {.fd = fifo_.get(), .events = POLLIN, .revents = 0}; }
  // The hook sends the container's state (runtime-spec runtime.md, "State") and then a line "ready".
  bool ready() override {
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(fifo_.get(), bytes.data(), bytes.size())) > 0;)
      hook_text_.append(bytes.data(), std::size_t(got));
    constexpr std::string_view kEnd = "ready\n";
    if (hook_text_.size() > kMaxHookBytes) fail<Error>("{} sent a state of more than {} bytes", name_, kMaxHookBytes);
    if (!hook_text_.ends_with(kEnd)) return false;
    const auto state =
        nlohmann::json::parse(std::string_view(hook_text_).substr(0, hook_text_.size() - kEnd.size()), nullptr, false);
    const auto pid =
        state.is_object() && state.contains("pid") && state["pid"].is_number_integer() ? state["pid"].get<pid_t>() : 0;
    if (pid > 0) watch_command(pid);
    return true;
  }
  pollfd ended_poll() const override { return {.fd = command_.get(), .events = POLLIN, .revents = 0}; }
  // runc goes on while anybody holds the output that it copies; without cgroups it cannot end them itself.
  void command_ended() override {
    command_.reset();
    end_init();
  }
  // It hands on to the command what it gets.
  pid_t signal_target() override { return process_; }

  Failure failure(int wait_status) override {
    end_init();
    const auto log = read_file_if_there(log_file_, kMaxLogBytes);
    auto reason = log ? last_log_error(as_text(*log)) : std::string();
    if (reason.empty()) reason = fmt::format("ended with status {}", shell_status(wait_status));
    return {.status = status_of_start_failure(reason), .reason = std::move(reason), .told = WIFEXITED(wait_status)};
  }

 protected:
  // What must change in this process's own mount namespace first.
  virtual void prepare_machine() {}

 private:
  void watch_command(pid_t pid) {
    command_.reset(int(::syscall(SYS_pidfd_open, pid, 0)));
    if (!command_ && errno == ESRCH) end_init();  // gone already
  }

  void open_fifo(const std::filesystem::path& path) {
    ::unlink(path.c_str());
    if (::mkfifo(path.c_str(), 0600) != 0) fail_errno("make the fifo {}", path.string());
    // For writing too, so that it never reads as ended.
    fifo_ = open_file(path, O_RDWR | O_NONBLOCK);
  }

  // With it goes every process of its namespace. It ends after them: those whose parent has ended wait for us to
  // collect them, as of a runtime that was killed while it started one. The runtime itself is for who waits for it.
  void end_init() {
    if (init_ <= 0) return;
    ::kill(init_, SIGKILL);
    while (::waitpid(init_, nullptr, WNOHANG) == 0) {
      for (const auto child : children_of(::getpid()))
        if (child != init_ && child != process_) ::waitpid(child, nullptr, WNOHANG);
      ::poll(nullptr, 0, kLookAtOrphansMs);
    }
    init_ = 0;
  }

  std::string name_;
  std::filesystem::path program_;
  std::filesystem::path log_file_;
  UniqueFd fifo_;
  UniqueFd command_;  // readable when the command has ended
  std::string hook_text_;
  pid_t init_ = 0;
  pid_t process_ = 0;
};

class Crun final : public OciRuntime {
 public:
  explicit Crun(std::filesystem::path program) : OciRuntime("crun", std::move(program)) {}

 protected:
  // crun refuses hierarchies of both cgroup versions side by side when the second has controllers. Only this session's
  // view changes.
  void prepare_machine() override { ::umount2("/sys/fs/cgroup/unified", MNT_DETACH); }
};

}  // namespace

std::unique_ptr<Runtime> make_runc(const std::filesystem::path& program) {
  return std::make_unique<OciRuntime>("runc", program);
}
std::unique_ptr<Runtime> make_nvidia_runtime(const std::filesystem::path& program) {
  return std::make_unique<OciRuntime>("nvidia", program);
}
std::unique_ptr<Runtime> make_crun(const std::filesystem::path& program) { return std::make_unique<Crun>(program); }

std::string container_id(const std::string& session_id) { return "varve-" + session_id; }

std::vector<std::string> runtime_words(const std::string& name, const std::filesystem::path& program,
                                       const std::filesystem::path& state, const std::filesystem::path& log) {
  std::vector<std::string> words = {program.string(), "--root", state.string(), "--log-format", "json", "--log"};
  words.push_back((name == "crun" ? "file:" : "") + log.string());
  if (name == "crun") words.insert(words.end(), {"--cgroup-manager", "cgroupfs"});
  return words;
}

std::string last_log_error(std::string_view log) {
  std::string last;
  while (!log.empty()) {
    const auto end = std::min(log.find('\n'), log.size());
    const auto line = nlohmann::json::parse(log.substr(0, end), nullptr, false);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (!line.is_object() || !line.contains("msg") || !line["msg"].is_string()) continue;
    if (line.contains("level") && line["level"] != "error" && line["level"] != "fatal") continue;
    last = line["msg"].get<std::string>();
  }
  std::replace(last.begin(), last.end(), '\n', ' ');
  return last;
}

int status_of_start_failure(std::string_view reason) {
  const auto says = [&](std::string_view words) { return reason.find(words) != reason.npos; };
  if (says("executable file") && says("not found")) return kNotFound;  // runc, crun: no such name in $PATH
  if (says("stat") && says("no such file or directory") && says("exec")) return kNotFound;  // runc: a path
  if (says("open executable") && says("No such file or directory")) return kNotFound;       // crun: a path
  if (says("exec format error") || says("Exec format error")) return kNotExecutable;
  if (says("exec") && (says("permission denied") || says("Permission denied"))) return kNotExecutable;
  return kOwnFailure;
}

}  // namespace varve::fuse
