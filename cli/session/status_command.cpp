#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "cli/base/signals.h"
#include "cli/session/daemon_access.h"
#include "cli/session/status_report.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::cli {
namespace {

constexpr const char* kUsualWatch = "2";
constexpr const char* kHomeAndClear = "\x1b[H\x1b[J";  // of a terminal

struct StatusArguments {
  std::filesystem::path dir;
  std::string watch;  // seconds; "": once
};

// While no daemon is there to say.
nlohmann::json json_without_daemon(const Context& context) {
  const auto bytes = bytes_on_disk(daemon_paths(context).store_dir());
  return {{"daemon", nullptr},
          {"mounts", nlohmann::json::array()},
          {"pulls", nlohmann::json::array()},
          {"links", nlohmann::json::array()},
          {"store", {{"bytes", bytes}, {"max_bytes", 0}}}};
}

// Absent if no daemon runs; also if one took the question, died, and no other followed.
std::optional<fuse::DaemonStatus> ask_daemon(const Context& context) {
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  if (!daemon) return std::nullopt;
  try {
    return daemon->status();
  } catch (const TemporaryError&) {
    if (fuse::ControlClient::connect(daemon_paths(context))) throw;
    return std::nullopt;
  }
}

struct Look {
  nlohmann::json json;
  std::string text;
};

Look look(const Context& context, const std::filesystem::path& dir) {
  const auto wanted = dir.empty() ? std::string() : name_of_mount_point(dir).string();
  auto status = ask_daemon(context);
  if (!status && !wanted.empty())
    fail<NotFound>("{}: varve has mounted nothing there, as no daemon runs for {}", wanted,
                   context.global.root.string());
  if (!status)
    return {.json = json_without_daemon(context),
            .text = fmt::format("no daemon runs for {}; nothing is mounted\n", context.global.root.string())};
  if (!wanted.empty()) {
    std::erase_if(status->mounts, [&](const auto& mount) { return mount.dir != wanted; });
    if (status->mounts.empty()) fail<NotFound>("{}: varve has mounted nothing there", wanted);
    std::erase_if(status->pulls, [&](const auto& pull) { return pull.image != status->mounts.front().stats.image; });
  }
  const auto sessions = running_sessions(context.global.root);
  return {.json = status_json(*status, sessions), .text = status_text(*status, sessions)};
}

// Until Ctrl-C, or until nobody reads it any more.
void watch(Context& context, const std::filesystem::path& dir, double interval_seconds) {
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  while (context.out) {
    const auto now = look(context, dir);
    if (context.global.json)
      context.out << now.json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    else if (terminal)
      context.out << kHomeAndClear << now.text;
    else
      context.out << now.text << '\n';
    context.out.flush();
    const Stopwatch since;
    while (since.seconds() < interval_seconds && !context.cancel.cancelled())
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (!context.cancel.cancelled()) continue;
    context.exit_status = kInterrupted;
    return;
  }
}

void run_status(Context& context, const StatusArguments& arguments) {
  if (!arguments.watch.empty()) return watch(context, arguments.dir, std::stod(arguments.watch));
  const auto now = look(context, arguments.dir);
  if (context.global.json) return context.print_json(now.json);
  context.out << now.text;
}

}  // namespace

void add_status_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<StatusArguments>();
  auto* command = app.add_subcommand(
      "status", "Shows what is mounted and pulled, how much of it is here, what is waited for; never touches a mount");
  command->add_option("DIR", arguments->dir, "Only this mount");
  command
      ->add_flag("--watch", arguments->watch,
                 "Look again every 2 s, or as --watch=SECONDS says, until Ctrl-C; with --json one document per line")
      ->transform(CLI::Validator(
          [](std::string& text) {
            if (text == "true") text = kUsualWatch;
            return CLI::Range(0.1, 86'400.0)(text);
          },
          ""));
  command->footer(
      "Examples:\n  varve status\n  varve status --watch\n  varve status --json /mnt/image\n\n"
      "ON DISK is the share of the image that is here, without what is marked cold (see `varve pull`); FETCHED what "
      "came from its source\n"
      "since the daemon opened it; ERRORS counts reads that failed after all retries: the daemon's log (daemon.log in "
      "the root) has each.");
  command->callback([&context, arguments] { run_status(context, *arguments); });
}

}  // namespace varve::cli
