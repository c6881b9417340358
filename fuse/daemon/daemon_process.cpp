#include "fuse/daemon/daemon_process.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_lock.h"
#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/process/inherited.h"
#include "core/base/threads/guarded.h"
#include "core/metrics/metrics_server.h"
#include "core/oci/repository.h"
#include "fuse/daemon/control_server.h"
#include "fuse/daemon/service_manager.h"

namespace varve::fuse {
namespace {

constexpr auto kEndPatience = std::chrono::seconds(10);  // for calls that hang in a registry when the daemon ends
constexpr int kRoomForOpen = 4096;                       // with threads, more would come slowly
constexpr int kLookMs = 1000;                            // whether nothing is used any more
// glibc gives threads heaps of their own, eight for each processor. Each keeps what was freed in it, and what one
// thread has fetched another frees when it is decoded: a pull held 113 MiB for 30 that it used.
constexpr int kHeaps = 4;

// Another daemon of this root, or of this run folder, holds it. Released when the process ends.
UniqueFd take_lock(const std::filesystem::path& path) {
  auto lock = try_lock(path);
  if (!lock) fail<TemporaryError>("another daemon holds {}", path.string());
  return std::move(*lock);
}

void tell(const UniqueFd& ready, std::string_view word) {
  if (!ready) return;
  if (::write(ready.get(), word.data(), word.size()) < 0) log::debug("nobody waits for the start of the daemon");
}

class Process {
 public:
  explicit Process(DaemonProcessOptions& options) : options_(options) {
    const auto& paths = options.daemon.paths;
    std::filesystem::create_directories(paths.root);
    std::filesystem::create_directories(paths.run_dir);
    if (::chmod(paths.run_dir.c_str(), 0700) != 0) fail_errno("close {} to other users", paths.run_dir.string());
    root_lock_ = take_lock(paths.root / "daemon.lock");
    run_lock_ = take_lock(paths.run_dir / "daemon.lock");
    end_event_.reset(::eventfd(0, EFD_CLOEXEC));
    if (!end_event_) fail_errno("make an event descriptor");
    signals_ = take_signals({SIGTERM, SIGINT, SIGHUP});
    options.daemon.descriptors = open_descriptor_store({.socket = paths.keeper_socket(),
                                                        .keeper = options.keeper_words,
                                                        .daemon = options.words,
                                                        .log_file = paths.log_file()});
    // Not before: signals are for their descriptor, and nobody changes the environment from here on.
    prepared_ = std::jthread(oci::prepare_for_registries);
    if (options.metrics) {
      options.daemon.metrics = std::make_shared<DaemonMetrics>(options.daemon.version);
      options.daemon.streams.metrics = options.daemon.metrics->streams();
    }
    daemon_.emplace(options.daemon);
    server_.emplace(*daemon_, paths.socket(),
                    ControlServer::Events{.shutdown = [this] { want({.kind = Wish::Kind::kEnd, .program = {}}); },
                                          .leave = [this] { want({.kind = Wish::Kind::kLeave, .program = {}}); },
                                          .replace =
                                              [this](const std::string& program) {
                                                want({.kind = Wish::Kind::kReplace, .program = program});
                                              }});
    mounts_ = open_file("/proc/self/mountinfo", O_RDONLY);
    if (options.metrics) show_metrics(*options.metrics);
  }

  void serve() {
    auto busy_until = std::chrono::steady_clock::now();
    while (true) {
      pollfd wait[] = {{.fd = end_event_.get(), .events = POLLIN, .revents = 0},
                       {.fd = signals_.get(), .events = POLLIN, .revents = 0},
                       // Its end only: answers are for who asked.
                       {.fd = daemon_->descriptors().watch_fd(), .events = 0, .revents = 0},
                       {.fd = mounts_.get(), .events = POLLPRI, .revents = 0}};
      if (::poll(wait, std::size(wait), options_.idle_exit.count() > 0 || draining_ ? kLookMs : -1) < 0 &&
          errno != EINTR)
        fail_errno("wait for the end");
      if (wait[0].revents != 0 && follow_wish()) return;
      if (wait[1].revents != 0 && is_end_signal() && may_end()) return;
      if (wait[2].revents != 0) renew_descriptor_store();
      if (wait[3].revents != 0) notice_unmounts();
      if (draining_ && may_end()) return;
      if (options_.idle_exit.count() == 0) continue;
      const auto now = std::chrono::steady_clock::now();
      if (!daemon_->idle() || server_->connections() > 0) busy_until = now;
      if (now - busy_until >= options_.idle_exit) return log::info("idle for {} s", options_.idle_exit.count());
    }
  }

  void end() {
    metrics_.reset();
    notify_service_manager("STOPPING=1");
    server_->stop_listening();
    daemon_->stop();
    if (!server_->hang_up(kEndPatience) || !daemon_->wait_for_look_ups(kEndPatience)) {
      // A call hangs in a registry. Everything is unmounted and on disk; the kernel frees the rest.
      log::warn("a call did not end in time");
      std::_Exit(0);
    }
    log::info("the daemon ends");
  }

 private:
  // A port that somebody else has takes no mount from anybody.
  void show_metrics(const ListenAddress& address) {
    const auto metrics = options_.daemon.metrics;
    metrics->registry().before_text([this, metrics] { metrics->set_counts(daemon_->counts()); });
    try {
      metrics_.emplace(address, metrics->registry());
      log::info("metrics at {}", metrics_->address().to_string());
    } catch (const std::exception& error) {
      log::error("there are no metrics: {}", error.what());
    }
  }

  // What a command asks for.
  struct Wish {
    enum class Kind : std::uint8_t { kNone, kEnd, kLeave, kReplace };
    Kind kind = Kind::kNone;
    std::string program;  // kReplace
  };
  void want(Wish wish) {
    wish_.with([&](Wish& wanted) { wanted = std::move(wish); });
    const std::uint64_t one = 1;
    if (::write(end_event_.get(), &one, sizeof one) < 0) log::error("end: {}", std::strerror(errno));
  }

  // True if the end is wanted.
  bool follow_wish() {
    std::uint64_t events = 0;
    if (::read(end_event_.get(), &events, sizeof events) < 0) log::debug("no event to take");
    auto wish = wish_.with([](Wish& wanted) { return std::exchange(wanted, {}); });
    switch (wish.kind) {
      case Wish::Kind::kEnd:
        log::info("a command asks for the end");
        return true;
      case Wish::Kind::kLeave:
        leave();
        break;
      case Wish::Kind::kReplace:
        replace(std::move(wish.program));
        break;
      case Wish::Kind::kNone:
        break;
    }
    return false;
  }

  // Comes back only if the other program could not be executed.
  void replace(std::string program) {
    log::info("{} takes the place of this daemon", program);
    try {
      auto words = options_.words;
      words.at(0) = std::move(program);
      // Of libraries, too; what is handed over is opened again after that.
      ::close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
      const auto guard = daemon_->hand_over();
      // Descriptors close, so that locks and sockets are free for it; signals stay blocked and are not lost.
      execute_in_place(words);
    } catch (const std::exception& error) {
      log::error("this daemon stays: {}", error.what());
    }
  }

  // As if it had been killed: what readers wait for, the next daemon is asked again. Comes back only if it cannot.
  void leave() {
    try {
      const auto guard = daemon_->hand_over();
      log::info("the daemon ends and leaves its mounts to the next one");
      std::_Exit(0);
    } catch (const std::exception& error) {
      log::error("this daemon stays: {}", error.what());
    }
  }

  // A signal asks. Nobody's files are taken away for it: they are left to the next daemon of the service if there may
  // be one, else what is used is served until it is not.
  bool may_end() {
    const auto in_use = daemon_->begin_stop().in_use;
    if (in_use.empty()) return true;
    if (std::exchange(draining_, true)) return false;
    for (const auto& use : in_use)
      log::warn("{} ({}) is in use; the daemon ends when that has ended, or with `varve daemon --stop --force`",
                use.dir, use.reference);
    if (daemon_->descriptors().kind() == "systemd") leave();
    daemon_->drain();
    return false;
  }

  void notice_unmounts() {
    try {
      daemon_->notice_unmounts();
    } catch (const std::exception& error) {
      log::error("look at what is mounted: {}", error.what());
    }
  }

  void renew_descriptor_store() {
    try {
      if (daemon_->descriptors().renew()) log::warn("the keeper has died; another one keeps the connections now");
    } catch (const std::exception& error) {
      log::error("the keeper has died, and no other could be started: {}; tried again", error.what());
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }

  // SIGHUP comes when a terminal closes, and the daemon does not belong to one.
  bool is_end_signal() const {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info) || info.ssi_signo == SIGHUP)
      return false;
    log::info("signal {}: asks for the end", info.ssi_signo);
    return true;
  }

  DaemonProcessOptions& options_;
  std::jthread prepared_;  // what the first mount would wait for
  UniqueFd root_lock_;
  UniqueFd run_lock_;
  UniqueFd end_event_;
  UniqueFd signals_;
  UniqueFd mounts_;  // the mount table, for its changes
  Guarded<Wish> wish_;
  bool draining_ = false;
  std::optional<Daemon> daemon_;
  std::optional<ControlServer> server_;
  std::optional<MetricsServer> metrics_;  // asks the daemon
};

}  // namespace

void run_daemon(DaemonProcessOptions options) {
  make_room_for_open(kRoomForOpen);
  ::mallopt(M_ARENA_MAX, kHeaps);
  std::optional<Process> process;
  try {
    process.emplace(options);
  } catch (const TemporaryError&) {
    tell(options.ready, "running");
    throw;
  } catch (const std::exception& error) {
    tell(options.ready, error.what());
    throw;
  }
  log::info("varve {} serves {} at {}", options.daemon.version, options.daemon.paths.root.string(),
            options.daemon.paths.socket().string());
  tell(options.ready, "ok");
  options.ready.reset();
  notify_service_manager("READY=1");
  process->serve();
  process->end();
}

}  // namespace varve::fuse
