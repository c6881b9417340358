#include "fuse/daemon/descriptor_store.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/handed_sockets.h"
#include "core/base/process/unix_socket.h"
#include "core/base/threads/guarded.h"
#include "fuse/daemon/keeper_protocol.h"
#include "fuse/daemon/service_manager.h"
#include "fuse/mount/pass_fd.h"

extern char** environ;  // NOLINT: POSIX has no header for it

namespace varve::fuse {
namespace {

using Kind = KeeperMessage::Kind;

constexpr const char* kHandedVariable = "VARVE_HANDED_DESCRIPTORS";  // from one program to the next across exec(2)
constexpr int kKeeperBacklog = 8;
constexpr std::string_view kNoKind = "none";
constexpr timeval kKeeperPatience{.tv_sec = 10, .tv_usec = 0};

// What stands before the next colon.
std::string_view next_part(std::string_view& text) {
  const auto end = std::min(text.find(':'), text.size());
  const auto part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

UniqueFd duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, kFirstHandedFd));
  if (!copy) fail_errno("duplicate a descriptor");
  return copy;
}

// Absent when no keeper listens there.
UniqueFd connect_keeper(const std::filesystem::path& path) {
  auto socket = make_unix_socket(SOCK_SEQPACKET);
  for (const int side : {SO_SNDTIMEO, SO_RCVTIMEO})
    ::setsockopt(socket.get(), SOL_SOCKET, side, &kKeeperPatience, sizeof kKeeperPatience);
  return connect_unix_socket(socket, path, "the keeper") ? std::move(socket) : UniqueFd();
}

// The socket listens before the keeper runs, so that one can connect at once.
void start_keeper(const DescriptorStoreOptions& options) {
  const auto listener = listen_at(options.socket, SOCK_SEQPACKET, kKeeperBacklog);
  const auto log = open_file(options.log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<char*> argv;
  for (const auto& word : options.keeper) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, listener.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, log.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, log.get(), STDERR_FILENO);
  // Libraries of this process open theirs to be inherited: the keeper would hold its connections to registries.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error == 0) return;
  errno = error;
  fail_errno("start the keeper {}", options.keeper.front());
}

[[noreturn]] void fail_unkept() {
  fail<Unsupported>("nothing keeps the connections of this daemon (its log says why), so that it cannot be replaced");
}

void warn_of_no_keeper(const std::exception& error) {
  log::warn("{}; mounts will not survive the death of the daemon", error.what());
}

// A process of ours. It keeps copies too, in case the keeper dies before the daemon. One that was just started is not
// waited for: its first answer is taken when something is to be kept. If that does not come nothing is kept.
class KeeperStore final : public DescriptorStore {
 public:
  explicit KeeperStore(DescriptorStoreOptions options) : options_(std::move(options)) {
    socket_ = connect_keeper(options_.socket);
    if (!socket_ || !is_greeted()) start_and_connect();
  }

  std::map<std::string, UniqueFd> take() override {
    std::map<std::string, UniqueFd> taken;
    const std::lock_guard guard(mutex_);
    if (!heard_) return taken;
    send_message(socket_.get(), {.kind = Kind::kTake, .name = "", .body = ""});
    while (true) {
      auto answer = expect_answer();
      if (answer.message.kind == Kind::kDone) return taken;
      if (answer.message.kind != Kind::kEntry || !answer.fd)
        fail<CorruptData>("the keeper gives something else than what it keeps");
      copies_[answer.message.name] = duplicate(answer.fd.get());
      taken[answer.message.name] = std::move(answer.fd);
    }
  }

  void keep(const std::string& name, int fd) override {
    const std::lock_guard guard(mutex_);
    if (!lives()) return;
    auto& copy = copies_[name] = duplicate(fd);
    try {
      try_to_store(name, copy.get());
    } catch (...) {
      copies_.erase(name);
      throw;
    }
  }

  void forget(const std::string& name) noexcept override {
    const std::lock_guard guard(mutex_);
    copies_.erase(name);
    if (lives()) try_to_ask({.kind = Kind::kRemove, .name = name, .body = ""});
  }

  void end() noexcept override {
    const std::lock_guard guard(mutex_);
    copies_.clear();
    if (lives()) try_to_ask({.kind = Kind::kGoodbye, .name = "", .body = ""});
    ::unlink(options_.socket.c_str());
  }

  void expect_successor() override {
    const std::lock_guard guard(mutex_);
    if (!lives()) fail_unkept();
    ask({.kind = Kind::kSuccessor, .name = "", .body = ""});
  }

  int watch_fd() const override {
    const std::lock_guard guard(mutex_);
    return gave_up_ ? -1 : socket_.get();
  }

  // Only once: keep() may have come first, and of two keepers one would be nobody's and hold all connections for good.
  bool renew() override {
    const std::lock_guard guard(mutex_);
    if (!lives()) return false;
    pollfd look{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) renew_with_copies();
    return true;
  }

  std::string_view kind() const override {
    const std::lock_guard guard(mutex_);
    return lives() ? "keeper" : kNoKind;
  }
  pid_t pid() const override {
    const std::lock_guard guard(mutex_);
    return lives() ? pid_ : 0;
  }

 private:
  // False if the one that was there is ending, as it does when it holds nothing and its daemon has died.
  bool is_greeted() {
    try {
      say_hello();
      hear_hello();
      return true;
    } catch (const Unsupported&) {
      throw;
    } catch (const std::exception& error) {
      log::info("{}; starting another", error.what());
      return false;
    }
  }

  void start_and_connect() const {
    start_keeper(options_);
    auto socket = connect_keeper(options_.socket);
    if (!socket) fail<Error>("the keeper does not listen at {}", options_.socket.string());
    socket_ = std::move(socket);
    say_hello();
  }

  void renew_with_copies() {
    start_and_connect();
    hear_hello();
    for (const auto& [name, fd] : copies_) ask({.kind = Kind::kStore, .name = name, .body = ""}, fd.get());
  }

  // A keeper that has just died is no reason to fail.
  void try_to_store(const std::string& name, int fd) {
    try {
      ask({.kind = Kind::kStore, .name = name, .body = ""}, fd);
    } catch (const Unsupported&) {
      throw;
    } catch (const std::exception& error) {
      log::warn("{}; starting another", error.what());
      renew_with_copies();
    }
  }

  void say_hello() const {
    std::string words;
    for (const auto& word : options_.daemon) words += word + '\0';
    send_message(socket_.get(), {.kind = Kind::kHello, .name = "", .body = std::move(words)});
    heard_ = false;
  }

  // Whom the kernel names is not the keeper but who made its socket.
  void hear_hello() const {
    if (std::exchange(heard_, true)) return;
    pid_ = static_cast<pid_t>(std::strtol(expect_answer().message.body.c_str(), nullptr, 10));
  }

  // False if the keeper that this process started first never answered, nor another one after it.
  bool lives() const {
    if (gave_up_) return false;
    try {
      try {
        hear_hello();
      } catch (const std::exception& error) {
        log::info("{}; starting another", error.what());
        start_and_connect();
        hear_hello();
      }
    } catch (const std::exception& error) {
      warn_of_no_keeper(error);
      gave_up_ = true;
    }
    return !gave_up_;
  }

  KeeperDelivery expect_answer() const {
    auto answer = receive_message(socket_.get());
    if (!answer) fail<Error>("the keeper has gone");
    if (answer->message.kind == Kind::kRefused) fail<Unsupported>("the keeper refuses: {}", answer->message.body);
    return std::move(*answer);
  }

  KeeperMessage ask(const KeeperMessage& message, int fd = -1) {
    send_message(socket_.get(), message, fd);
    return std::move(expect_answer().message);
  }

  void try_to_ask(const KeeperMessage& message) noexcept {
    try {
      ask(message);
    } catch (const std::exception& error) {
      log::debug("{}", error.what());
    }
  }

  const DescriptorStoreOptions options_;
  mutable std::mutex mutex_;  // a request and its answer belong together
  mutable UniqueFd socket_;
  mutable bool heard_ = true;  // the answer to hello
  mutable bool gave_up_ = false;
  mutable pid_t pid_ = 0;
  std::map<std::string, UniqueFd> copies_;
};

// systemd keeps what it is sent, and hands it to the next process of the service (sd_pid_notify_with_fds(3),
// sd_listen_fds(3)). A process that follows by exec(2) is handed the copies in the same way.
class SystemdStore final : public DescriptorStore {
 public:
  SystemdStore() {
    const auto variable = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    adopt_listened(count_handed_fds(), variable("LISTEN_FDNAMES"));
    adopt_handed(variable(kHandedVariable));
    forget_handed_fds();
    ::unsetenv(kHandedVariable);
  }

  std::map<std::string, UniqueFd> take() override {
    return copies_.with([](auto& copies) {
      std::map<std::string, UniqueFd> taken;
      for (const auto& [name, fd] : copies) taken[name] = duplicate(fd.get());
      return taken;
    });
  }

  void keep(const std::string& name, int fd) override {
    auto copy = duplicate(fd);
    if (!notify_service_manager("FDSTORE=1\nFDNAME=" + name, fd))
      fail<Error>("systemd does not keep a descriptor (FileDescriptorStoreMax= in the unit)");
    copies_.with([&](auto& copies) { copies[name] = std::move(copy); });
  }

  void forget(const std::string& name) noexcept override {
    copies_.with([&](auto& copies) { copies.erase(name); });
    notify_service_manager("FDSTOREREMOVE=1\nFDNAME=" + name);
  }

  void end() noexcept override {
    const auto copies = copies_.with([](auto& all) { return std::exchange(all, {}); });
    for (const auto& [name, fd] : copies) notify_service_manager("FDSTOREREMOVE=1\nFDNAME=" + name);
  }

  // By numbers of our own and not from 3 on, since threads still use what lies there.
  void expect_successor() override {
    copies_.with([](auto& copies) {
      std::string handed;
      for (const auto& [name, fd] : copies) {
        if (::fcntl(fd.get(), F_SETFD, 0) != 0) fail_errno("hand a descriptor on");
        handed += fmt::format("{}:{}:", name, fd.get());
      }
      ::setenv(kHandedVariable, handed.c_str(), 1);
    });
  }

  std::string_view kind() const override { return "systemd"; }

 private:
  void adopt(std::string_view name, int fd) {
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) copies_.with([&](auto& copies) { copies[std::string(name)].reset(fd); });
  }

  void adopt_listened(int count, std::string_view names) {
    if (static_cast<std::size_t>(count) > kMaxKeptDescriptors)
      return log::warn("systemd passes {} descriptors: they are not looked at", count);
    for (int fd = kFirstHandedFd; fd < kFirstHandedFd + count; ++fd) adopt(next_part(names), fd);
  }

  void adopt_handed(std::string_view handed) {
    while (!handed.empty()) {
      const auto name = next_part(handed);
      adopt(name, static_cast<int>(std::strtol(std::string(next_part(handed)).c_str(), nullptr, 10)));
    }
  }

  Guarded<std::map<std::string, UniqueFd>> copies_;
};

class NoStore final : public DescriptorStore {
 public:
  std::map<std::string, UniqueFd> take() override { return {}; }
  void keep(const std::string&, int) override {}
  void forget(const std::string&) noexcept override {}
  void end() noexcept override {}
  void expect_successor() override { fail_unkept(); }
  std::string_view kind() const override { return kNoKind; }
};

}  // namespace

std::unique_ptr<DescriptorStore> open_descriptor_store(const DescriptorStoreOptions& options) {
  if (const char* path = std::getenv("NOTIFY_SOCKET"); path != nullptr && *path != '\0')
    return std::make_unique<SystemdStore>();
  try {
    if (!options.keeper.empty()) return std::make_unique<KeeperStore>(options);
  } catch (const std::exception& error) {
    warn_of_no_keeper(error);
  }
  return std::make_unique<NoStore>();
}

}  // namespace varve::fuse
