#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/metrics_option.h"
#include "cli/base/text.h"
#include "cli/session/daemon_access.h"
#include "core/base/errors.h"
#include "core/base/process/handed_sockets.h"
#include "core/base/process/unix_socket.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "fuse/control/control_protocol.h"
#include "snapshotter/snapshot_table.h"

namespace varve::cli {
namespace {

constexpr const char* kProgram = "varve-snapshotter";

struct SnapshotterArguments {
  std::string address;
  std::string group;
  std::string mode = "auto";
  std::string metrics;  // "" = off
  bool status = false;
};

std::filesystem::path address_of(const Context& context, const SnapshotterArguments& arguments) {
  return arguments.address.empty() ? context.global.run_dir / "snapshotter.sock"
                                   : std::filesystem::absolute(arguments.address).lexically_normal();
}

// Beside this program, as it is built; or where it is installed.
std::filesystem::path find_snapshotter(const std::filesystem::path& varve) {
  const auto own = std::filesystem::canonical(varve).parent_path();
  for (const auto& place : {own / kProgram, own.parent_path() / "libexec/varve" / kProgram})
    if (::access(place.c_str(), X_OK) == 0) return place;
  fail<NotFound>("{} is not installed: it comes with the package {}, or with `make install`", kProgram, kProgram);
}

// Sockets of a service manager are for the program that follows.
void keep_handed_sockets() {
  const int end = kFirstHandedFd + count_handed_fds();
  for (int fd = kFirstHandedFd; fd < end; ++fd)
    if (::fcntl(fd, F_SETFD, 0) != 0) fail_errno("keep the socket of the service manager");
}

void serve(const Context& context, const SnapshotterArguments& arguments) {
  if (::geteuid() != 0) fail<Unsupported>("containerd's snapshots need root: run `varve snapshotter` as root");
  const auto program = find_snapshotter(context.program);
  const auto paths = daemon_paths(context);
  if (!arguments.group.empty() && address_of(context, arguments).parent_path() == paths.run_dir)
    fail<UsageError>("--group: {} is closed to all but root; choose an --address in another folder",
                     paths.run_dir.string());
  // Its reference is any that is right: each image brings its own.
  auto image = image_spec(context, "varve.invalid/any:any");
  image.reference.clear();
  const nlohmann::json settled{
      {"root", paths.root.string()},        {"run_dir", paths.run_dir.string()},
      {"program", context.program},         {"address", address_of(context, arguments).string()},
      {"group", arguments.group},           {"mode", arguments.mode},
      {"metrics", arguments.metrics},       {"image", image},
      {"debug", context.global.verbose > 0}};
  keep_handed_sockets();
  const auto text = settled.dump();
  ::execl(program.c_str(), program.c_str(), text.c_str(), nullptr);
  fail_errno("execute {}", program.string());
}

bool answers(const std::filesystem::path& address) {
  const auto socket = make_unix_socket(SOCK_STREAM | SOCK_NONBLOCK);
  return connect_unix_socket(socket, address, "the snapshotter");
}

void print_status(const Context& context, const SnapshotterArguments& arguments) {
  const auto file = snapshotter::SnapshotTable::file_of(context.global.root / "snapshotter");
  if (!std::filesystem::exists(file))
    fail<NotFound>("{}: no snapshotter has run with this root", file.parent_path().string());
  snapshotter::SnapshotTable table(file);
  const auto address = address_of(context, arguments);
  const bool serving = answers(address);
  const auto counts = table.counts();
  const auto refusals = table.refusals();
  if (context.global.json) {
    auto refused = nlohmann::json::array();
    for (const auto& one : refusals)
      refused.push_back({{"image", one.image.to_string()},
                         {"reference", json_name(one.reference)},
                         {"why", json_name(one.why)},
                         {"at", rfc3339(one.at)}});
    return context.print_json({{"serving", serving},
                               {"address", address.string()},
                               {"snapshots",
                                {{"active", counts.active},
                                 {"views", counts.views},
                                 {"unpacked", counts.unpacked},
                                 {"placeholders", counts.placeholders}}},
                               {"images", table.images()},
                               {"refused", std::move(refused)}});
  }
  context.out << fmt::format(
      "snapshotter at {}: {}\n{} containers and unpackings, {} views, {} unpacked layers, {} layers that are mounted "
      "lazily; {} images known\n",
      address.string(), serving ? "serving" : "not serving", counts.active, counts.views, counts.unpacked,
      counts.placeholders, table.images());
  if (refusals.empty()) return;
  context.out << "\nImages whose layers were fetched whole:\n";
  std::vector<std::vector<std::string>> rows{{"WHEN (UTC)", "IMAGE", "WHY"}};
  for (const auto& one : refusals)
    rows.push_back({rfc3339(one.at).substr(0, 16), printable(one.reference), message_text(one.why)});
  print_table(context.out, rows);
}

}  // namespace

void add_snapshotter_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<SnapshotterArguments>();
  auto* command = app.add_subcommand(
      "snapshotter",
      "Serves containerd's snapshots, in the foreground: indexed images are mounted lazily, all others "
      "work as ever");
  command
      ->add_option("--address", arguments->address,
                   "Its socket (default: snapshotter.sock beside the daemon's); systemd's goes first")
      ->type_name("SOCKET");
  command->add_option("--group", arguments->group, "Let this group call it too")->type_name("GROUP");
  command
      ->add_option("--mode", arguments->mode,
                   "How trees are mounted: kernel (EROFS), fuse, or auto, the best that works")
      ->check(CLI::IsMember({"auto", "kernel", "fuse"}))
      ->capture_default_str();
  add_metrics_option(*command, arguments->metrics);
  command->add_flag("--status", arguments->status,
                    "Say what it serves, and which images were not mounted lazily and why");
  command->footer(
      "Examples:\n"
      "  varve snapshotter\n"
      "  varve snapshotter --address /run/varve/snapshotter.sock --mode kernel\n"
      "  varve snapshotter --status\n\n"
      "containerd is told of it by a [proxy_plugins.varve] section with this address. It starts the daemon if none "
      "runs,\n"
      "and may be restarted at any time: what is mounted stays, and all it knows is on disk under the root.");
  command->callback([&context, arguments] {
    if (arguments->status) return print_status(context, *arguments);
    serve(context, *arguments);
  });
}

}  // namespace varve::cli
