#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "cli/session/daemon_access.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/safe_text.h"
#include "core/base/units.h"
#include "fuse/daemon/control_protocol.h"

namespace varve::cli {
namespace {

// As the daemon says it, and whether all is here.
nlohmann::json json_of(const fuse::DaemonStatus& status) {
  nlohmann::json document = status;
  for (std::size_t i = 0; i < status.mounts.size(); ++i)
    document["mounts"][i]["complete"] = status.mounts[i].stats.complete();
  return document;
}

void print(const fuse::DaemonStatus& status, std::ostream& out) {
  out << fmt::format("daemon {} (version {}) for {:.0f} s, store {}\n", status.daemon.pid, status.daemon.version,
                     status.daemon.uptime_seconds, human_bytes(status.store.bytes));
  if (status.daemon.keeper == "none") out << "nothing keeps its mounts if it dies (its log says why)\n";
  if (status.mounts.empty()) {
    out << "nothing is mounted\n";
    return;
  }
  std::vector<std::vector<std::string>> rows{
      {"DIR", "MODE", "IMAGE", "SIZE", "COLD", "HERE", "FETCHED", "REQUESTS", "FETCHING", "ERRORS"}};
  for (const auto& mount : status.mounts) {
    const auto& stats = mount.stats;
    // Of what is not cold: 100 % is what `varve pull` comes to.
    const auto wanted = stats.image_stream_bytes - stats.cold_bytes;
    const auto share = wanted == 0 ? 100 : (stats.present_bytes - stats.cold_present_bytes) * 100 / wanted;
    rows.push_back({printable(mount.dir) + (mount.session ? " (session)" : ""), std::string(to_string(mount.mode)),
                    printable(stats.reference), human_bytes(stats.image_stream_bytes),
                    stats.cold_bytes == 0 ? "-" : human_bytes(stats.cold_bytes), fmt::format("{} %", share),
                    human_bytes(stats.fetched_bytes), std::to_string(stats.requests), std::to_string(stats.fetching),
                    std::to_string(stats.errors)});
  }
  print_table(out, rows);
  for (const auto& mount : status.mounts) {
    if (!mount.stats.last_error.empty())
      out << fmt::format("last error of {}: {}\n", printable(mount.dir), printable(mount.stats.last_error));
  }
}

void report_no_daemon(Context& context) {
  if (!context.global.json) {
    context.out << fmt::format("no daemon runs for {}; nothing is mounted\n", context.global.root.string());
    return;
  }
  // While no daemon is there to say.
  const auto bytes = bytes_on_disk(daemon_paths(context).store_dir());
  context.print_json(
      {{"daemon", nullptr}, {"mounts", nlohmann::json::array()}, {"store", {{"bytes", bytes}, {"max_bytes", 0}}}});
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

void run_status(Context& context, const std::filesystem::path& dir) {
  const auto wanted = dir.empty() ? std::string() : name_of_mount_point(dir).string();
  auto answer = ask_daemon(context);
  if (!answer && !wanted.empty())
    fail<NotFound>("{}: varve has mounted nothing there, as no daemon runs for {}", wanted,
                   context.global.root.string());
  if (!answer) return report_no_daemon(context);
  auto& status = *answer;
  if (!wanted.empty()) {
    std::erase_if(status.mounts, [&](const auto& mount) { return mount.dir != wanted; });
    if (status.mounts.empty()) fail<NotFound>("{}: varve has mounted nothing there", wanted);
  }
  if (!context.global.json) return print(status, context.out);
  context.print_json(json_of(status));
}

}  // namespace

void add_status_command(CLI::App& app, Context& context) {
  const auto dir = std::make_shared<std::filesystem::path>();
  auto* command = app.add_subcommand(
      "status", "Shows what is mounted, how much of it is here, what is being fetched; never touches a mount");
  command->add_option("DIR", *dir, "Only this mount");
  command->footer(
      "Examples:\n  varve status\n  varve status --json /mnt/image\n\n"
      "Errors are counted after all retries; the daemon's log (daemon.log in the root) has each of them.\n"
      "HERE is the share of what is not cold (see `varve pull`).");
  command->callback([&context, dir] { run_status(context, *dir); });
}

}  // namespace varve::cli
