#include "core/base/process/child_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <set>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"

namespace varve {
namespace {

constexpr std::chrono::milliseconds kLook{200};  // how often a cancelled program notices
constexpr int kPassedFd = 3;
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;
constexpr int kMaxRounds = 1000;  // of ending descendants that make new ones

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
};

// How the child begins: its descriptors, mostly a process group of its own, no signal blocked.
class SpawnRules {
 public:
  explicit SpawnRules(bool own_group) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, short((own_group ? POSIX_SPAWN_SETPGROUP : 0) | POSIX_SPAWN_SETSIGMASK));
  }
  ~SpawnRules() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnRules(const SpawnRules&) = delete;
  SpawnRules& operator=(const SpawnRules&) = delete;
  void connect(int fd, int as) { ::posix_spawn_file_actions_adddup2(&actions_, fd, as); }
  int spawn(pid_t& pid, std::vector<char*>& argv, char* const* environment) {
    return ::posix_spawnp(&pid, argv[0], &actions_, &attributes_, argv.data(), environment);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const auto& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

// Processes whose parent is this one.
std::set<pid_t> own_children() {
  std::set<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (!tasks) return children;
  while (const auto* task = ::readdir(tasks.get())) {
    if (task->d_name[0] == '.') continue;
    std::ifstream list(std::string("/proc/self/task/") + task->d_name + "/children");
    for (pid_t pid = 0; list >> pid;) children.insert(pid);
  }
  return children;
}

// While it lives, what a child leaves behind becomes a child of this process, and is ended at the end.
class Orphans {
 public:
  explicit Orphans(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    before_ = own_children();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  }
  ~Orphans() {
    if (!wanted_) return;
    // Ending one makes its own children ours.
    for (int round = 0; round < kMaxRounds && end_them(); ++round) {
    }
    ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
  }
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

 private:
  bool end_them() const {
    bool any = false;
    for (const auto pid : own_children()) {
      if (before_.contains(pid)) continue;
      any = true;
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    return any;
  }

  bool wanted_;
  std::set<pid_t> before_;
};

class Child {
 public:
  // False when the program cannot be executed, which `result` then says.
  static bool start(const ChildProgram& program, Child& child, ChildResult& result) {
    child.in_own_group_ = !program.in_foreground;
    SpawnRules rules(child.in_own_group_);
    if (!program.in_foreground) rules.connect(child.in_.read.get(), STDIN_FILENO);
    rules.connect(program.in_foreground ? STDERR_FILENO : child.out_.write.get(), STDOUT_FILENO);
    if (!program.in_foreground && !program.shows_errors) rules.connect(child.err_.write.get(), STDERR_FILENO);
    if (program.passed_fd >= 0) rules.connect(program.passed_fd, kPassedFd);  // last: a pipe may be of this number
    auto argv = pointers(program.words);
    auto environment = program.environment ? pointers(*program.environment) : std::vector<char*>();
    pid_t pid = 0;
    const int error = rules.spawn(pid, argv, program.environment ? environment.data() : environ);
    if (error == ENOENT || error == ENOTDIR || error == EACCES || error == ENOEXEC) {
      result.exit_status = error == EACCES || error == ENOEXEC ? kNotExecutable : kNotFound;
      result.err = program.words.front() + ": " + std::generic_category().message(error) + "\n";
      return false;
    }
    if (error != 0) throw std::system_error(error, std::generic_category(), "start " + program.words.front());
    child.pid_ = pid;
    if (program.max_memory_bytes != 0) {
      // It has run for a moment already, in which it cannot have taken much.
      const rlimit limit{.rlim_cur = program.max_memory_bytes, .rlim_max = program.max_memory_bytes};
      ::prlimit(pid, RLIMIT_AS, &limit, nullptr);
    }
    child.in_.read.reset(), child.out_.write.reset(), child.err_.write.reset();
    child.ended_.reset(int(::syscall(SYS_pidfd_open, child.pid_, 0)));
    if (!child.ended_) fail_errno("watch the process of {}", program.words.front());
    for (const auto* fd : {&child.in_.write, &child.out_.read, &child.err_.read})
      ::fcntl(fd->get(), F_SETFL, O_NONBLOCK);
    return true;
  }

  Child() = default;
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Until the program has ended and what it said is read, or the deadline.
  void talk(std::string_view input, std::chrono::steady_clock::time_point deadline, std::size_t max_output,
            const CancelFlag& cancel, ChildResult& result) {
    if (input.empty()) in_.write.reset();
    for (bool ended = false; !ended;) {
      cancel.throw_if_cancelled();
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) {
        result.timed_out = true;
        return;
      }
      std::array<pollfd, 4> waits = {pollfd{in_.write.get(), POLLOUT, 0}, pollfd{out_.read.get(), POLLIN, 0},
                                     pollfd{err_.read.get(), POLLIN, 0}, pollfd{ended_.get(), POLLIN, 0}};
      ::poll(waits.data(), waits.size(), int(std::min(left, kLook).count()));
      ended = waits[3].revents != 0;
      if (waits[0].revents != 0) feed(input);
      // What it said before its end is in the pipes by now; a descendant may say more for ever, which nobody waits for.
      while (take(out_.read, result.out, max_output) && ended && result.out.size() < max_output) {
      }
      while (take(err_.read, result.err, max_output) && ended && result.err.size() < max_output) {
      }
    }
  }

  // Kills what is left of its group, and gives its status as a shell does.
  int end() {
    if (pid_ <= 0) return 0;
    // The program keeps its number until it is waited for, so this can be no other group's.
    ::kill(in_own_group_ ? -pid_ : pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  void feed(std::string_view& input) {
    // A program that ends without reading must not end us: SIGPIPE is for this thread, and is taken back.
    sigset_t pipe, old;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, &old);
    const auto written = ::write(in_.write.get(), input.data(), input.size());
    const bool gone = written < 0 && errno != EAGAIN && errno != EINTR;
    if (gone) {
      const timespec now{};
      ::sigtimedwait(&pipe, nullptr, &now);
    }
    ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
    if (written > 0) input.remove_prefix(std::size_t(written));
    if (gone || input.empty()) in_.write.reset();
  }

  // True if there was something, and there may be more.
  static bool take(UniqueFd& from, std::string& into, std::size_t max_output) {
    if (!from) return false;
    std::array<char, 1 << 16> bytes;
    const auto got = ::read(from.get(), bytes.data(), bytes.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    if (got <= 0) {
      from.reset();
      return false;
    }
    into.append(bytes.data(), std::min(std::size_t(got), max_output - std::min(into.size(), max_output)));
    return true;
  }

  Pipe in_, out_, err_;
  UniqueFd ended_;
  pid_t pid_ = 0;
  bool in_own_group_ = true;
};

}  // namespace

std::vector<std::string> own_environment() {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) variables.emplace_back(*at);
  return variables;
}

ChildResult run_child(const ChildProgram& program, const CancelFlag& cancel) {
  const Stopwatch watch;
  const auto deadline = std::chrono::steady_clock::now() + program.limit;
  ChildResult result;
  const Orphans orphans(program.end_descendants);
  Child child;
  if (!Child::start(program, child, result)) return result;
  child.talk(program.input, deadline, program.max_output, cancel, result);
  result.exit_status = child.end();
  result.seconds = watch.seconds();
  return result;
}

// While a thread executes a program, no thread can begin that would share its root and current folder (copy_fs() in the
// kernel gives EAGAIN): in a daemon, a call or a read of that moment would fail. So this one shares them with no other.
void execute_in_place(const std::vector<std::string>& words) {
  if (::unshare(CLONE_FS) != 0) fail_errno("have a current folder of our own");
  const auto argv = pointers(words);
  ::execv(argv[0], argv.data());
  fail_errno("execute {}", words.at(0));
}

}  // namespace varve
