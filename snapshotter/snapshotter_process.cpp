#include "snapshotter/snapshotter_process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/files/file_lock.h"
#include "core/base/files/private_folder.h"
#include "core/base/log.h"
#include "core/base/process/handed_sockets.h"
#include "core/base/process/unix_socket.h"
#include "core/base/threads/ticker.h"
#include "core/metrics/metrics_server.h"
#include "fuse/daemon/service_manager.h"
#include "snapshotter/snapshot_service.h"
#include "snapshotter/snapshots.h"

namespace varve::snapshotter {
namespace {

constexpr int kBacklog = 128;
constexpr auto kEndPatience = std::chrono::milliseconds(5'000);
constexpr auto kShortage = std::chrono::milliseconds(100);
constexpr auto kForgottenCleanup = std::chrono::seconds(10);

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

SnapshotsOptions usual_options() {
  SnapshotsOptions options;
  options.now_ns = now_ns;
  options.lazy.now = [] { return now_ns() / 1'000'000'000; };
  return options;
}

UniqueFd take_lock(const std::filesystem::path& dir) {
  // Callers hand the paths to overlayfs as they are.
  if (dir.string().find_first_of(":,\\\"") != std::string::npos)
    fail<UsageError>("--root: overlayfs takes no folder with ':', ',', '\\' or '\"' in its name: {}", dir.string());
  make_private_folder(dir);
  auto lock = try_lock(dir / "lock");
  if (!lock) fail<TemporaryError>("another snapshotter serves {}", dir.string());
  return std::move(*lock);
}

// The one that a service manager has opened for this process, so that callers wait while one snapshotter follows
// another.
UniqueFd take_handed_listener() {
  const int handed = count_handed_fds();
  forget_handed_fds();
  if (handed == 0) return {};
  if (handed != 1) fail<UsageError>("{} sockets were handed to the snapshotter, it serves one", handed);
  UniqueFd listener(kFirstHandedFd);
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
    fail<UsageError>("what was handed to the snapshotter is no listening socket");
  if (::fcntl(listener.get(), F_SETFD, FD_CLOEXEC) != 0) fail_errno("keep the listening socket");
  return listener;
}

void open_to_group(const std::filesystem::path& address, const std::string& name) {
  const auto* group = ::getgrnam(name.c_str());
  if (group == nullptr) fail<UsageError>("--group {}: there is no such group", name);
  if (::chown(address.c_str(), static_cast<uid_t>(-1), group->gr_gid) != 0 || ::chmod(address.c_str(), 0660) != 0)
    fail_errno("open {} to the group {}", address.string(), name);
}

class Process {
 public:
  explicit Process(const SnapshotterOptions& options)
      : options_(options),
        lock_(take_lock(options.dir)),
        signals_(fuse::take_signals({SIGTERM, SIGINT})),
        listener_(take_handed_listener()),
        own_address_(!listener_),
        trees_(options.trees),
        snapshots_(options.dir, trees_, usual_options()),
        server_(snapshots_, metrics_) {
    if (!options.metrics.empty()) metrics_server_.emplace(parse_metrics_address(options.metrics), metrics_);
    if (own_address_) {
      std::filesystem::create_directories(options.address.parent_path());
      listener_ = listen_at(options.address, SOCK_STREAM, kBacklog);
      if (!options.group.empty()) open_to_group(options.address, options.group);
    }
    cleaning_.emplace(kForgottenCleanup, [this] { clean_what_was_forgotten(); });
    learning_ = true;
    std::thread([this] { learn(); }).detach();
  }

  void serve() {
    fuse::notify_service_manager("READY=1");
    log::info("the snapshotter serves {}", own_address_ ? options_.address.string() : "the socket that it was given");
    while (true) {
      pollfd wait[] = {{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                       {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
      if (::poll(wait, std::size(wait), -1) < 0 && errno != EINTR) fail_errno("wait for callers");
      if (wait[1].revents != 0) return;
      if (wait[0].revents != 0) accept_caller();
    }
  }

  // Does not return: what waits for the daemon or a registry is not waited for. All that counts is on disk.
  [[noreturn]] void end() {
    fuse::notify_service_manager("STOPPING=1");
    listener_.reset();
    if (own_address_) ::unlink(options_.address.c_str());
    metrics_server_.reset();
    server_.end(kEndPatience);
    log::info("the snapshotter ends; what is mounted stays");
    std::_Exit(0);
  }

 private:
  void accept_caller() {
    UniqueFd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (caller) return server_.serve(std::move(caller));
    if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) return;
    log::warn("accept a caller: {}", std::system_category().message(errno));
    std::this_thread::sleep_for(kShortage);  // of descriptors or memory
  }

  // Starts the daemon, too, if none runs.
  void learn() noexcept {
    try {
      snapshots_.images().learn_opened();
      snapshots_.cleanup();
    } catch (const std::exception& error) {
      log::warn("images that were opened on this machine are not known: {}", error_text(error));
    }
    learning_ = false;
  }

  void clean_what_was_forgotten() noexcept {
    try {
      snapshots_.cleanup_if_removed();
    } catch (const std::exception& error) {
      log::warn("what was removed is cleaned up later: {}", error_text(error));
    }
  }

  const SnapshotterOptions& options_;
  const UniqueFd lock_;
  const UniqueFd signals_;
  UniqueFd listener_;
  const bool own_address_;
  DaemonTrees trees_;
  Snapshots snapshots_;
  MetricRegistry metrics_;
  SnapshotServer server_;
  std::optional<MetricsServer> metrics_server_;
  std::optional<Ticker> cleaning_;
  std::atomic<bool> learning_ = false;
};

}  // namespace

void run_snapshotter(const SnapshotterOptions& options) {
  Process process(options);
  process.serve();
  process.end();
}

}  // namespace varve::snapshotter
