#include "fuse/daemon/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/inherited.h"
#include "fuse/daemon/keeper_protocol.h"

namespace varve::fuse {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = KeeperMessage::Kind;

constexpr std::size_t kMaxClients = 16;
constexpr timeval kSendPatience{.tv_sec = 5, .tv_usec = 0};  // a client that does not read must not stop the keeper
constexpr auto kLockedPatience =
    std::chrono::seconds(60);  // for a daemon of this root that another command has started
constexpr auto kShortLife = std::chrono::seconds(1);
constexpr auto kLookAgain = std::chrono::milliseconds(100);
constexpr int kIgnored[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE};
constexpr int kExitTemporary = 75;  // of a daemon that found the root taken

std::vector<std::string> words_of(const std::string& body) {
  std::vector<std::string> words;
  for (std::size_t at = 0, end = 0; (end = body.find('\0', at)) != body.npos; at = end + 1)
    words.push_back(body.substr(at, end - at));
  return words;
}

struct Client {
  UniqueFd socket;
  bool gone = false;
};

// The daemon that the keeper has started last; `came` once a daemon has said hello since.
struct Child {
  pid_t pid = 0;
  UniqueFd pidfd;
  bool came = false;
};

class Keeper {
 public:
  explicit Keeper(KeeperOptions options) : options_(std::move(options)) {}

  void run() {
    while (!ended_) {
      if (start_at_ && Clock::now() >= *start_at_) start_daemon();
      if (!served_ && Clock::now() >= begin_ + options_.successor_patience) return;  // who started it has died
      if (served_ && !daemon_is_here() && !child_ && !start_at_ && clients_.empty() && kept_.empty()) return;
      wait_once();
    }
  }

 private:
  bool daemon_is_here() const { return daemon_ != nullptr; }

  void wait_once() {
    std::vector<pollfd> waits{{options_.listener.get(), POLLIN, 0}, {child_ ? child_->pidfd.get() : -1, POLLIN, 0}};
    for (const auto& client : clients_) waits.push_back({client.socket.get(), POLLIN, 0});
    int timeout = served_ ? -1 : 1000;
    if (start_at_)
      timeout = static_cast<int>(
          std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(*start_at_ - Clock::now()).count()));
    if (::poll(waits.data(), waits.size(), timeout) < 0 && errno != EINTR) fail_errno("keeper: wait");
    auto wait = waits.begin() + 2;
    for (auto& client : clients_) {
      if ((wait++)->revents != 0) hear(client);
    }
    const bool daemon_died = daemon_ != nullptr && daemon_->gone;
    if (daemon_died) daemon_ = nullptr;
    clients_.remove_if([](const Client& client) { return client.gone; });
    if (waits[0].revents != 0) admit();
    if (waits[1].revents != 0) reap();
    if (daemon_died && !ended_) on_death();
  }

  void admit() {
    Client client{.socket = UniqueFd(::accept4(options_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
    if (!client.socket) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known =
        ::getsockopt(client.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
    ::setsockopt(client.socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kSendPatience, sizeof kSendPatience);
    if (!known || clients_.size() >= kMaxClients) return;  // hung up on
    clients_.push_back(std::move(client));
  }

  void hear(Client& client) {
    try {
      auto delivery = receive_message(client.socket.get());
      if (!delivery)
        client.gone = true;
      else
        answer(client, *delivery);
    } catch (const std::exception& error) {
      log::warn("keeper: {}", error.what());
      client.gone = true;
    }
  }

  void answer(Client& client, KeeperDelivery& delivery) {
    const int socket = client.socket.get();
    auto& message = delivery.message;
    switch (message.kind) {
      case Kind::kHello:
        words_ = words_of(message.body);
        daemon_ = &client;
        served_ = true;
        hello_at_ = Clock::now();
        successor_expected_ = false;
        start_at_.reset();
        locked_since_.reset();
        if (child_) child_->came = true;
        return send_message(socket, {.kind = Kind::kDone, .name = "", .body = std::to_string(::getpid())});
      case Kind::kStore:
        if (!delivery.fd || message.name.empty())
          return send_message(socket, {.kind = Kind::kRefused, .name = "", .body = "nothing to keep, or no name"});
        if (kept_.size() >= kMaxKeptDescriptors && !kept_.contains(message.name))
          return send_message(socket, {.kind = Kind::kRefused,
                                       .name = "",
                                       .body = fmt::format("{} descriptors are kept already", kept_.size())});
        kept_[message.name] = std::move(delivery.fd);
        break;
      case Kind::kRemove:
        kept_.erase(message.name);
        break;
      case Kind::kTake:
        for (const auto& [name, fd] : kept_)
          send_message(socket, {.kind = Kind::kEntry, .name = name, .body = ""}, fd.get());
        break;
      case Kind::kSuccessor:
        successor_expected_ = true;
        break;
      case Kind::kGoodbye:
        kept_.clear();
        ended_ = true;
        break;
      default:
        return send_message(socket, {.kind = Kind::kRefused, .name = "", .body = "not a request"});
    }
    send_message(socket, {});
  }

  void on_death() {
    if (kept_.empty()) return;  // nobody misses it
    if (std::exchange(successor_expected_, false)) {
      start_at_ = Clock::now() + options_.successor_patience;
      return;
    }
    log::warn("the daemon died; {} connections wait for another", kept_.size());
    count_death();
  }

  // Plans the next start: at once, or after a growing pause for one that dies as soon as it runs. Or gives up.
  void count_death() {
    const auto now = Clock::now();
    std::erase_if(deaths_, [&](auto death) { return now - death > options_.window; });
    deaths_.push_back(now);
    if (deaths_.size() > options_.max_deaths || words_.empty()) {
      log::error(
          "the daemon died {} times in {} s: its {} connections are given up, their readers get an error; the next "
          "command cleans up",
          deaths_.size(), options_.window.count(), kept_.size());
      kept_.clear();
      ended_ = true;
      return;
    }
    start_at_ = now;
    if (now - hello_at_ < kShortLife) *start_at_ += (deaths_.size() - 1) * kLookAgain;
  }

  void start_daemon() {
    start_at_.reset();
    if (child_ && child_->came) start_at_ = Clock::now() + kLookAgain;  // it is dying, and still holds the root
    if (daemon_is_here() || child_) return;
    auto words = words_;
    const UniqueFd log = open_file(options_.log_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (words.back() != "--background") words.emplace_back("--background");  // its terminal may be gone
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::setsid();
      for (const int signal : kIgnored) ::signal(signal, SIG_DFL);
      sigset_t none;
      ::sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      if (lead_nowhere(std::array{STDIN_FILENO}) && ::dup2(log.get(), STDOUT_FILENO) >= 0 &&
          ::dup2(log.get(), STDERR_FILENO) >= 0)
        ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    if (pid < 0) {
      log::error("keeper: start the daemon: {}", std::generic_category().message(errno));
      return count_death();
    }
    child_ = Child{.pid = pid, .pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
    log::info("keeper: started daemon {}", pid);
  }

  void reap() {
    int status = 0;
    const auto child = *std::exchange(child_, std::nullopt);
    if (::waitpid(child.pid, &status, 0) != child.pid || child.came)
      return;  // of the death of one that came its socket tells
    if (daemon_is_here() || start_at_ || ended_ || kept_.empty()) return;
    const auto now = Clock::now();
    // Another one holds the root: it is dying, or coming up and will be here soon.
    if (WIFEXITED(status) && WEXITSTATUS(status) == kExitTemporary &&
        now - locked_since_.value_or(now) < kLockedPatience) {
      if (!locked_since_) locked_since_ = now;
      start_at_ = now + kLookAgain;
      return;
    }
    count_death();
  }

  KeeperOptions options_;
  std::map<std::string, UniqueFd> kept_;
  std::list<Client> clients_;
  Client* daemon_ = nullptr;  // in clients_
  std::vector<std::string> words_;
  std::optional<Child> child_;
  std::deque<Clock::time_point> deaths_;
  std::optional<Clock::time_point> start_at_;
  std::optional<Clock::time_point> locked_since_;
  Clock::time_point hello_at_;
  bool successor_expected_ = false;
  const Clock::time_point begin_ = Clock::now();
  // A daemon has come: until then it waits, whoever comes to see whether it listens.
  bool served_ = false;
  bool ended_ = false;
};

}  // namespace

void run_keeper(KeeperOptions options) {
  // It ends when its work ends; a terminal that closes or a service that is stopped is the daemon's business, and that
  // says goodbye.
  for (const int signal : kIgnored) ::signal(signal, SIG_IGN);
  if (::chdir("/") != 0) log::debug("keeper: stays in its folder");
  Keeper(std::move(options)).run();
}

}  // namespace varve::fuse
