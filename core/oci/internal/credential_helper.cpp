#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/json_document.h"
#include "core/base/unique_fd.h"
#include "core/oci/internal/credentials.h"

extern char** environ;

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxAnswerBytes = 1024 * 1024;
constexpr std::chrono::seconds kTimeLimit{30};

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Pipe make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) fail_errno("make a pipe");
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A child that is killed and waited for if it is left behind.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  // The exit status, or -1 if a signal ended it.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0)
      if (errno != EINTR) break;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

pid_t spawn(const std::string& program, int input, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  std::string name = program;
  std::string verb = "get";
  char* const arguments[] = {name.data(), verb.data(), nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, program.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail<Error>("credential helper {}: {}", program, std::strerror(error));
  return pid;
}

std::string read_answer(int fd, const std::string& program) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  std::string answer;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int count = left.count() <= 0 ? 0 : ::poll(&ready, 1, int(left.count()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail<Error>("credential helper {}: no answer within {} s", program, kTimeLimit.count());
    char buffer[4096];
    const auto got = ::read(fd, buffer, sizeof buffer);
    if (got < 0) fail_errno("read the answer of credential helper {}", program);
    if (got == 0) return answer;
    answer.append(buffer, std::size_t(got));
    if (answer.size() > kMaxAnswerBytes) fail<Error>("credential helper {}: an endless answer", program);
  }
}

}  // namespace

std::optional<Credential> ask_credential_helper(const std::string& name, const std::string& server) {
  // The name becomes part of a program's name; it must not become a path.
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (!is_plain) fail<Error>("'{}' is no valid name of a credential helper", name);
  const auto program = "docker-credential-" + name;
  auto input = make_pipe();
  auto output = make_pipe();
  // The server's name fits into the pipe, so it can be written before anybody reads; a helper that reads nothing does
  // not hurt.
  const auto line = server + "\n";
  if (::write(input.write_end.get(), line.data(), line.size()) != ssize_t(line.size()))
    fail_errno("write to credential helper {}", program);
  input.write_end.reset();
  Child child(spawn(program, input.read_end.get(), output.write_end.get()));
  input.read_end.reset();
  output.write_end.reset();
  const auto answer = read_answer(output.read_end.get(), program);
  if (const int status = child.wait(); status != 0) {
    if (answer.find("credentials not found in native keychain") != std::string::npos) return std::nullopt;
    fail<Error>("credential helper {} failed with status {} for {}", program, status,
                server);  // its output may hold secrets
  }
  const auto what = "the answer of credential helper " + program;
  const auto json = JsonValue::parse(answer, what, {.bytes = kMaxAnswerBytes});
  Credential credential{
      .username = json.maybe("Username").text(), .password = json.maybe("Secret").text(), .identity_token = {}};
  if (credential.username == "<token>")
    credential = {.username = {}, .password = {}, .identity_token = credential.password};
  return credential;
}

}  // namespace varve::oci::internal
