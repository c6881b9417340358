#include "cli/child_sessions.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "core/base/unique_fd.h"

namespace varve::cli {
namespace {

constexpr int kOwnFailure = 125;
constexpr std::chrono::milliseconds kLook{200};  // how often a cancelled program notices

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
};

class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  void connect(const UniqueFd& fd, int as) { ::posix_spawn_file_actions_adddup2(&actions_, fd.get(), as); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

class Child {
 public:
  explicit Child(const std::vector<std::string>& words) {
    SpawnActions actions;
    actions.connect(in_.read, STDIN_FILENO);
    actions.connect(out_.write, STDOUT_FILENO);
    actions.connect(err_.write, STDERR_FILENO);
    std::vector<char*> argv;
    for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    if (const int error = ::posix_spawn(&pid_, argv[0], actions.get(), nullptr, argv.data(), environ); error != 0)
      throw std::system_error(error, std::generic_category(), "start " + words.front());
    in_.read.reset(), out_.write.reset(), err_.write.reset();
    ::fcntl(in_.write.get(), F_SETFL, O_NONBLOCK);
  }
  // Killed, its session ends with it.
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Until its output is at an end, or the deadline.
  void talk(std::string_view input, std::chrono::steady_clock::time_point deadline, const CancelFlag& cancel, prune::ProgramResult& result) {
    if (input.empty()) in_.write.reset();
    while (out_.read || err_.read) {
      cancel.throw_if_cancelled();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) {
        result.timed_out = true;
        return;
      }
      std::array<pollfd, 3> waits = {pollfd{in_.write.get(), POLLOUT, 0}, pollfd{out_.read.get(), POLLIN, 0}, pollfd{err_.read.get(), POLLIN, 0}};
      ::poll(waits.data(), waits.size(), int(std::min(left, kLook).count()));
      if (waits[0].revents != 0) feed(input);
      if (waits[1].revents != 0) take(out_.read, result.out);
      if (waits[2].revents != 0) take(err_.read, result.err);
    }
  }

  // As a shell gives it.
  int wait() {
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

  static void take(UniqueFd& from, std::string& into) {
    std::array<char, 1 << 16> bytes;
    const auto got = ::read(from.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) return from.reset();
    into.append(bytes.data(), std::min(std::size_t(got), prune::kMaxProgramOutput - std::min(into.size(), prune::kMaxProgramOutput)));
  }

  Pipe in_, out_, err_;
  pid_t pid_ = 0;
};

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

std::vector<std::string> ChildSessions::words(const Digest& image, const std::vector<std::string>& command) const {
  const auto& global = context_.global;
  std::vector<std::string> words = {context_.program, "run", "--rm", "--network", "none", "--gpus", "none", "--no-record", "--entrypoint", "", "--root", global.root.string()};
  if (!global.platform.empty()) words.insert(words.end(), {"--platform", global.platform});
  if (!global.registry.authfile.empty()) words.insert(words.end(), {"--authfile", global.registry.authfile.string()});
  if (!global.registry.ca_file.empty()) words.insert(words.end(), {"--ca-file", global.registry.ca_file.string()});
  if (global.registry.plain_http) words.emplace_back("--plain-http");
  const auto reference = references_.find(image);
  if (reference == references_.end()) fail<prune::CouldNotRun>("nobody said where {} is", image.to_string());
  words.push_back(reference->second);
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

prune::ProgramResult ChildSessions::run(const Digest& image, const std::vector<std::string>& command, std::string_view standard_input, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Child child(words(image, command));
  prune::ProgramResult result;
  child.talk(standard_input, deadline, context_.cancel, result);
  if (result.timed_out) return result;
  result.exit_status = child.wait();
  if (result.exit_status == kOwnFailure) fail<prune::CouldNotRun>("a session of {}: {}", references_.at(image), last_line(result.err));
  return result;
}

}  // namespace varve::cli
