#include <unistd.h>

#include <fcntl.h>

#include <chrono>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/daemon_access.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/daemon_process.h"

namespace varve::cli {
namespace {

struct DaemonArguments {
  std::filesystem::path run_dir;
  int ready_fd = -1;
  bool stop = false;
  unsigned deadline_seconds = 120;
  unsigned idle_exit_seconds = 0;
  fuse::DaemonOptions options;
};

void stop_daemon(const Context& context) {
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  if (!daemon) fail<NotFound>("no daemon runs for {}", context.global.root.string());
  daemon->shutdown();
}

void run_daemon_command(Context& context, DaemonArguments& arguments) {
  if (arguments.stop) return stop_daemon(context);
  const bool in_background = arguments.ready_fd >= 0;
  if (in_background) {
    if (::fcntl(arguments.ready_fd, F_SETFD, FD_CLOEXEC) != 0) throw UsageError("daemon: --ready-fd is for the program itself");
    log::set_level(context.global.verbose >= 2 ? log::Level::kDebug : log::Level::kInfo);
    log::write_to_file(daemon_paths(context).log_file().string());
  } else if (!context.global.quiet && context.global.verbose < 2) {
    log::set_level(log::Level::kInfo);
  }
  auto options = arguments.options;
  options.paths = daemon_paths(context);
  if (!arguments.run_dir.empty()) options.paths.run_dir = arguments.run_dir;
  options.version = VARVE_VERSION;
  options.streams.deadline = std::chrono::seconds(arguments.deadline_seconds);
  options.streams.drop_store_pages = true;
  fuse::run_daemon({.daemon = std::move(options), .ready = UniqueFd(arguments.ready_fd), .idle_exit = std::chrono::seconds(arguments.idle_exit_seconds)});
}

}  // namespace

void add_daemon_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<DaemonArguments>();
  auto* command = app.add_subcommand("daemon", "Serves all mounts and sessions of this machine, in the foreground; `mount` and `run` start one when none runs");
  command->add_flag("--stop", arguments->stop, "Unmount everything and end the daemon that runs");
  command->add_option("--deadline", arguments->deadline_seconds, "Seconds after which a read that cannot be served fails")->check(CLI::Range(1u, 86'400u))->capture_default_str();
  command->add_option("--connections", arguments->options.streams.connections, "Requests to registries at the same time")->check(CLI::Range(1u, 64u))->capture_default_str();
  command->add_option("--threads", arguments->options.fuse_threads, "Threads of each FUSE connection")->check(CLI::Range(1u, 64u))->capture_default_str();
  command->add_option("--read-ahead", arguments->options.read_ahead_kb, "KiB the kernel reads ahead in kernel mode; 0: its default (128)")->check(CLI::Range(0u, 65'536u))->capture_default_str();
  command->add_option("--store-size", arguments->options.streams.store_limit.max_bytes, "Bytes on disk that the store may hold, as 200GB or 64GiB; what was not used for longest goes first. 0: no limit")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  command->add_option("--evict-idle", arguments->options.streams.store_limit.reader_idle_seconds, "With --store-size: seconds for which what was used stays, whatever readers need")
      ->capture_default_str();
  command->add_option("--idle-exit", arguments->idle_exit_seconds, "End when nothing was mounted for so many seconds; 0: never")->capture_default_str();
  command->add_option("--run-dir", arguments->run_dir, "Where the socket lies")->group("");
  command->add_option("--ready-fd", arguments->ready_fd, "Where to report readiness")->group("");
  command->footer(
      "Examples:\n"
      "  varve daemon -v\n"
      "  varve daemon --store-size 200GB\n"
      "  varve daemon --stop\n\n"
      "SIGTERM unmounts everything and ends it. Under systemd it reports readiness (Type=notify). A daemon that `mount` or `run` started\n"
      "logs to daemon.log in the root and takes its settings from [daemon] in varve.toml.");
  command->callback([&context, arguments] { run_daemon_command(context, *arguments); });
}

}  // namespace varve::cli
