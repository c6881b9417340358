#include <unistd.h>

#include <fcntl.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <set>

#include <nlohmann/json.hpp>

#include "cli/base/metrics_option.h"
#include "cli/session/daemon_access.h"
#include "cli/session/status_report.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/threads/parallel.h"
#include "core/metrics/metrics_server.h"
#include "fuse/control/control_protocol.h"
#include "fuse/daemon/daemon_process.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/keeper.h"
#include "fuse/session/session_control.h"

namespace varve::cli {
namespace {

constexpr std::size_t kSessionsAtOnce = 64;  // that are waited for

struct DaemonArguments {
  std::filesystem::path run_dir;
  int ready_fd = -1;
  bool background = false;  // not at a terminal: logs to daemon.log
  bool keeper = false;      // the keeper, on the socket at standard input
  bool stop = false;
  bool force = false;
  unsigned grace_seconds = 10;
  bool leave = false;
  bool replace = false;
  unsigned deadline_seconds = 120;
  unsigned idle_exit_seconds = 0;
  unsigned keep_mounted_seconds = unsigned(fuse::DaemonOptions().keep_mounted.count());
  std::string metrics;  // "" = off
  unsigned max_restarts = fuse::KeeperOptions().max_deaths;
  fuse::DaemonOptions options;
};

std::string processes_of(const fuse::MountUse& use) {
  std::vector<std::string> names;
  for (const auto& process : use.processes)
    names.push_back(process.name.empty() ? fmt::format("process {}", process.pid)
                                         : fmt::format("{} (process {})", printable(process.name), process.pid));
  return joined(names);
}

// "team/app:v1, held by pod-7", "session lab of team/notebook:v1", "/mnt/image of team/notebook:v1, used by python3
// (process 77)"
std::string describe(const fuse::MountUse& use, const RunningSessions& sessions) {
  const auto image = printable(short_reference(use.reference));
  if (!use.held_by.empty()) return fmt::format("{}, {}", image, printable(holders_text(use.held_by)));
  const auto found = sessions.find(use.image.to_string());
  if (use.session && found != sessions.end()) return fmt::format("{} of {}", sessions_text(found->second), image);
  const auto processes = processes_of(use);
  const auto by = processes.empty() ? "" : ", used by " + processes;
  return fmt::format("{} of {}{}", use.session ? "a command" : printable(use.dir), image, by);
}

void report_in_use(Context& context, const fuse::StopResult& result) {
  const auto sessions = running_sessions(context.global.root);
  std::string message = "the daemon was not stopped, as these would lose their files:";
  for (const auto& use : result.in_use) message += "\n  " + describe(use, sessions);
  message += "\n  End them first, or let `varve daemon --stop --force` do so.";
  if (context.global.json) {
    context.print_json({{"stopped", false}, {"in_use", result.in_use}});
    context.err << "varve: error: " << message << '\n';
    context.exit_status = 1;
    return;
  }
  throw Error(message);
}

// Those that the daemon serves, in order: each is tidied up when this returns. The daemon itself ends what has come
// meanwhile, and commands that hold an image without a session.
void end_sessions(const Context& context, const fuse::DaemonStatus& status, std::chrono::seconds grace) {
  std::set<std::string> images;
  for (const auto& mount : status.mounts)
    if (mount.session) images.insert(mount.stats.image.to_string());
  if (images.empty()) return;
  const fuse::SessionStore store(context.global.root);
  auto sessions = store.list();
  std::erase_if(sessions,
                [&](const auto& session) { return !session.running || !images.contains(session.record.image_digest); });
  parallel_for(sessions.size(), kSessionsAtOnce, context.cancel,
               [&](std::size_t i, const CancelFlag&) { fuse::stop_session(store, sessions[i], grace); });
}

void stop_daemon(Context& context, bool force, unsigned grace_seconds) {
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  if (!daemon && !context.global.quiet)
    context.err << fmt::format("no daemon runs for {}\n", context.global.root.string());
  if (daemon && force) {
    const std::chrono::seconds grace(grace_seconds);
    end_sessions(context, daemon->status(), grace);
    daemon->end_all(grace);
  }
  if (daemon && !force)
    if (const auto result = daemon->shutdown(); !result.in_use.empty()) return report_in_use(context, result);
  if (context.global.json) context.print_json({{"stopped", true}, {"in_use", nlohmann::json::array()}});
}

void leave_daemon(const Context& context) {
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  if (!daemon) fail<NotFound>("no daemon runs for {}", context.global.root.string());
  daemon->leave(fuse::kHandoverFormats);
}

// This very program takes over: it is the one that the user has called.
void replace_daemon(const Context& context) {
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  if (!daemon) fail<NotFound>("no daemon runs for {}", context.global.root.string());
  const auto before = daemon->status().daemon;
  daemon->replace(context.program, fuse::kHandoverFormats);
  const auto after = daemon->status();
  if (context.global.json)
    return context.print_json({{"pid", after.daemon.pid},
                               {"version_before", before.version},
                               {"version", after.daemon.version},
                               {"mounts", after.mounts.size()}});
  context.out << fmt::format("daemon {}: version {} in place of {}, {} mounts\n", after.daemon.pid,
                             after.daemon.version, before.version, after.mounts.size());
}

// The words that start this daemon again, whatever the configuration and the working folder will be then.
std::vector<std::string> words_of(const Context& context, const DaemonArguments& arguments,
                                  const fuse::DaemonPaths& paths, bool in_background) {
  const auto& options = arguments.options;
  std::vector<std::string> words{context.program, "--root", paths.root.string()};
  if (context.global.quiet) words.emplace_back("--quiet");
  for (int i = 0; i < context.global.verbose; ++i) words.emplace_back("-v");
  words.insert(words.end(), {"daemon", "--run-dir", paths.run_dir.string()});
  words.insert(words.end(), {"--deadline", std::to_string(arguments.deadline_seconds), "--connections",
                             std::to_string(options.streams.connections)});
  words.insert(words.end(), {"--threads", std::to_string(options.fuse_threads), "--read-ahead",
                             std::to_string(options.read_ahead_kb)});
  words.insert(words.end(), {"--idle-exit", std::to_string(arguments.idle_exit_seconds), "--max-restarts",
                             std::to_string(arguments.max_restarts)});
  words.insert(words.end(), {"--keep-mounted", std::to_string(arguments.keep_mounted_seconds)});
  if (options.fill) words.emplace_back("--fill");
  const auto& limit = options.streams.store_limit;
  words.insert(words.end(), {"--store-size", std::to_string(limit.max_bytes), "--evict-idle",
                             std::to_string(limit.reader_idle_seconds)});
  if (!arguments.metrics.empty()) words.insert(words.end(), {"--metrics", arguments.metrics});
  if (in_background) words.emplace_back("--background");
  return words;
}

void run_daemon_command(Context& context, DaemonArguments& arguments) {
  if (arguments.stop) return stop_daemon(context, arguments.force, arguments.grace_seconds);
  if (arguments.leave) return leave_daemon(context);
  if (arguments.replace) return replace_daemon(context);
  const bool in_background = arguments.ready_fd >= 0 || arguments.background || arguments.keeper;
  if (in_background) {
    ::unsetenv("NOTIFY_SOCKET");  // of a service that has started a command of ours, which is not this one
    if (arguments.ready_fd >= 0 && ::fcntl(arguments.ready_fd, F_SETFD, FD_CLOEXEC) != 0)
      throw UsageError("daemon: --ready-fd is for the program itself");
    log::set_level(context.global.verbose >= 2 ? log::Level::kDebug : log::Level::kInfo);
    log::write_to_file(daemon_paths(context).log_file().string());
  } else if (!context.global.quiet && context.global.verbose < 2) {
    log::set_level(log::Level::kInfo);
  }
  auto options = arguments.options;
  options.paths = daemon_paths(context);
  if (!arguments.run_dir.empty()) options.paths.run_dir = arguments.run_dir;
  if (arguments.keeper)
    return fuse::run_keeper({.listener = UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
                             .log_file = options.paths.log_file(),
                             .max_deaths = arguments.max_restarts});
  options.version = VARVE_VERSION;
  options.trust = context.global.trust;
  options.credential_providers = context.global.registry.credential_providers;
  options.keep_mounted = std::chrono::seconds(arguments.keep_mounted_seconds);
  options.streams.deadline = std::chrono::seconds(arguments.deadline_seconds);
  options.streams.drop_store_pages = true;
  auto words = words_of(context, arguments, options.paths, in_background);
  const auto root = options.paths.root.string();
  const auto run_dir = options.paths.run_dir.string();
  fuse::run_daemon(
      {.daemon = std::move(options),
       .ready = UniqueFd(arguments.ready_fd),
       .metrics = arguments.metrics.empty() ? std::nullopt : std::optional(parse_metrics_address(arguments.metrics)),
       .idle_exit = std::chrono::seconds(arguments.idle_exit_seconds),
       .words = std::move(words),
       .keeper_words = {context.program, "--root", root, "daemon", "--run-dir", run_dir, "--max-restarts",
                        std::to_string(arguments.max_restarts), "--keeper"}});
}

}  // namespace

void add_daemon_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<DaemonArguments>();
  auto* command = app.add_subcommand(
      "daemon",
      "Serves all mounts and sessions of this machine, in the foreground; `mount` and `run` start one when none runs");
  auto* stop = command->add_flag(
      "--stop", arguments->stop,
      "Unmount everything and end the daemon that runs; refused while sessions run or processes use a mount");
  auto* force = command->add_flag("--force", arguments->force,
                                  "With --stop: end sessions first, then take mounts from whoever uses them");
  command
      ->add_option("--time", arguments->grace_seconds,
                   "With --force: seconds that sessions have to end (SIGTERM) before they are killed")
      ->check(CLI::Range(0u, 3'600u))
      ->needs(force)
      ->capture_default_str();
  force->needs(stop);
  command->add_flag(
      "--leave", arguments->leave,
      "End the daemon of a service and leave its mounts and sessions to the next one (systemd keeps them)");
  command->add_flag("--replace", arguments->replace,
                    "Put this program in the place of the daemon that runs; its mounts and sessions go on");
  command
      ->add_option("--deadline", arguments->deadline_seconds, "Seconds after which a read that cannot be served fails")
      ->check(CLI::Range(1u, 86'400u))
      ->capture_default_str();
  command
      ->add_option("--connections", arguments->options.streams.connections, "Requests to registries at the same time")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  command->add_option("--threads", arguments->options.fuse_threads, "Threads of each FUSE connection")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  command
      ->add_option("--read-ahead", arguments->options.read_ahead_kb,
                   "KiB the kernel reads ahead in kernel mode; 0: 8 if the image has packs, else its default (128)")
      ->check(CLI::Range(0u, 65'536u))
      ->capture_default_str();
  command
      ->add_option(
          "--store-size", arguments->options.streams.store_limit.max_bytes,
          "Bytes on disk that the store may hold, as 200GB or 64GiB; what was not used for longest goes first. 0: "
          "no limit")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  command
      ->add_option("--evict-idle", arguments->options.streams.store_limit.reader_idle_seconds,
                   "With --store-size: seconds for which what was used stays, whatever readers need")
      ->capture_default_str();
  command
      ->add_option("--keep-mounted", arguments->keep_mounted_seconds,
                   "Seconds an image stays mounted after its last session, for the next one to find its pages, unless "
                   "memory or the store is short; 0: not at all")
      ->check(CLI::Range(0u, 86'400u))
      ->capture_default_str();
  command->add_flag("--fill", arguments->options.fill,
                    "Fetch the rest of every image that is mounted or run, as `mount --fill`; not with --no-prefetch");
  command
      ->add_option("--idle-exit", arguments->idle_exit_seconds,
                   "End when nothing that is mounted was used for so many seconds; 0: never")
      ->capture_default_str();
  command
      ->add_option("--max-restarts", arguments->max_restarts,
                   "How often in a minute the keeper starts the daemon again before it gives its mounts up")
      ->check(CLI::Range(0u, 1'000u))
      ->capture_default_str();
  add_metrics_option(*command, arguments->metrics);
  command->add_option("--run-dir", arguments->run_dir, "Where the socket lies")->group("");
  command->add_option("--ready-fd", arguments->ready_fd, "Where to report readiness")->group("");
  command->add_flag("--background", arguments->background, "Log to daemon.log")->group("");
  command->add_flag("--keeper", arguments->keeper, "Keep the connections of a daemon")->group("");
  command->footer(
      "Examples:\n"
      "  varve daemon -v\n"
      "  varve daemon --store-size 200GB\n"
      "  varve daemon --stop\n"
      "  varve daemon --stop --force --time 30\n"
      "  /usr/local/bin/varve daemon --replace\n\n"
      "SIGTERM ends it as --stop does; what is in use is served to its end first, or left to the next daemon of the "
      "service.\n"
      "Under systemd it reports readiness (Type=notify). A daemon that `mount` or `run` started\n"
      "logs to daemon.log in the root and takes its settings from [daemon] in varve.toml.\n"
      "If the daemon dies, its mounts wait: a keeper (or systemd) holds their connections and starts it again, and "
      "it goes on with them.");
  command->callback([&context, arguments] { run_daemon_command(context, *arguments); });
}

}  // namespace varve::cli
