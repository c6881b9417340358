#include <sys/stat.h>

#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/containerd/containerd_check.h"
#include "cli/containerd/containerd_config.h"
#include "cli/session/daemon_access.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/oci/platform.h"
#include "fuse/daemon/mounted_image.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefaultConfig = "/etc/containerd/config.toml";
constexpr std::chrono::seconds kVersionPatience{20};

struct ContainerdArguments {
  std::string version;
  fs::path config;
  fs::path address;
  bool write = false;
  bool k3s = false;
  bool rke2 = false;
};

// What k3s and rke2 start their containerd with: written anew at each start, from a template if there is one.
struct Places {
  fs::path from;  // that is read
  fs::path to;    // that is written
};

ContainerdVersion find_version(const Context& context, const ContainerdArguments& arguments) {
  if (!arguments.version.empty()) return parse_containerd_version(arguments.version);
  const auto asked =
      run_child({.words = {"containerd", "--version"}, .input = {}, .limit = kVersionPatience, .environment = {}},
                context.cancel);
  if (asked.exit_status != 0)
    fail<NotFound>("no containerd in PATH says its version ({}); give it: --version 1.7.24",
                   printable(asked.err.substr(0, asked.err.find('\n'))));
  return parse_containerd_version(asked.out);
}

// As `varve snapshotter` finds it.
fs::path address_of(const Context& context, const ContainerdArguments& arguments) {
  if (!arguments.address.empty()) return fs::absolute(arguments.address);
  const auto set = context.global.set_by.find("snapshotter.address");
  return set != context.global.set_by.end() ? fs::path(set->second.value) : context.global.run_dir / "snapshotter.sock";
}

ContainerdSettings settings_of(const Context& context, const ContainerdArguments& arguments) {
  return {.version = find_version(context, arguments),
          .socket = address_of(context, arguments),
          .root = fs::absolute(context.global.root),
          .platform = oci::Platform::of_this_machine().to_string()};
}

std::string read_config(const fs::path& path) {
  const auto text = read_file_if_there(path, kMaxTomlBytes);
  return text ? std::string(as_text(*text)) : std::string();
}

Places places_of(const ContainerdArguments& arguments) {
  if (!arguments.k3s && !arguments.rke2) {
    const fs::path file = arguments.config.empty() ? fs::path(kDefaultConfig) : arguments.config;
    std::error_code absent;
    const auto real = fs::canonical(file, absent);  // a link stays one
    return {.from = absent ? file : real, .to = absent ? file : real};
  }
  const fs::path dir = arguments.config.empty()
                           ? fs::path("/var/lib/rancher") / (arguments.k3s ? "k3s" : "rke2") / "agent/etc/containerd"
                           : arguments.config.parent_path();
  const auto from = dir / "config.toml";
  const auto text = read_config(from);
  if (text.empty())
    fail<NotFound>("{}: is not there; {} writes it when it starts for the first time", from.string(),
                   arguments.k3s ? "k3s" : "rke2");
  const auto file = parse_toml(text, from.string());
  const auto* format = file.find("version");
  return {.from = from,
          .to = dir / (format != nullptr && format->integer >= 3 ? "config-v3.toml.tmpl" : "config.toml.tmpl")};
}

// "" if there was nothing to keep.
std::string keep_backup(const fs::path& path) {
  const auto before = read_file_if_there(path, kMaxTomlBytes);
  if (!before) return "";
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()).time_since_epoch();
  auto backup = fmt::format("{}.before-varve-{}", path.string(), now.count());
  AtomicFile file(backup, 0600);
  file.write(*before);
  file.commit();
  return backup;
}

void write_config(const fs::path& path, std::string_view text) {
  struct stat before {};
  const auto mode = ::stat(path.c_str(), &before) == 0 ? before.st_mode & 0777 : 0644;
  fs::create_directories(path.parent_path());
  AtomicFile file(path, mode);
  file.write(as_bytes(text));
  file.commit();
}

// A template that somebody wrote is no TOML, and may be rendered from what he has in mind.
void refuse_template(const std::string& text, const fs::path& path, const std::string& snippet) {
  if (text.find("{{") != std::string::npos)
    fail<Unsupported>("{}: is a template with rules of its own; add these lines to it by hand:\n{}", path.string(),
                      snippet);
}

void configure(Context& context, const ContainerdArguments& arguments) {
  const auto settings = settings_of(context, arguments);
  const auto snippet = merge_settings("", "snippet", settings);
  if (!arguments.write) {
    if (context.global.json)
      return context.print_json({{"version", settings.version.to_string()}, {"configuration", snippet}});
    context.out << snippet;
    return;
  }
  const auto places = places_of(arguments);
  const auto there = read_config(places.to);
  refuse_template(there, places.to, snippet);
  const auto before = places.to == places.from || there.empty() ? read_config(places.from) : there;
  refuse_template(before, places.from, snippet);
  const auto after = merge_settings(before, (there.empty() ? places.from : places.to).string(), settings);
  const bool changed = after != there;
  std::string backup;
  if (changed) {
    backup = keep_backup(places.to);
    write_config(places.to, after);
  }
  if (context.global.json)
    return context.print_json({{"version", settings.version.to_string()},
                               {"file", places.to.string()},
                               {"changed", changed},
                               {"backup", backup.empty() ? nlohmann::json() : nlohmann::json(backup)}});
  if (!changed) {
    context.out << fmt::format("{}: has all that Varve needs\n", places.to.string());
    return;
  }
  context.out << fmt::format("{}: written{}; it counts when {} is restarted, and running containers go on\n",
                             places.to.string(), backup.empty() ? "" : " (before: " + backup + ")",
                             arguments.k3s    ? "k3s"
                             : arguments.rke2 ? "rke2"
                                              : "containerd");
}

std::optional<fuse::DaemonStatus> status_of_daemon(const Context& context) {
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  return daemon ? std::optional(daemon->status()) : std::nullopt;
}

void check(Context& context, const ContainerdArguments& arguments) {
  const auto places = places_of(arguments);
  const ContainerdNode node{.config_file = places.from,
                            .settings = settings_of(context, arguments),
                            .daemon = status_of_daemon(context),
                            .no_kernel_mode = fuse::why_no_kernel_mode(),
                            .has_systemd = fs::is_directory("/run/systemd/system")};
  const auto findings = check_containerd(node);
  if (!findings.empty()) context.exit_status = 3;
  if (context.global.json) {
    auto rows = nlohmann::json::array();
    for (const auto& one : findings)
      rows.push_back({{"name", one.name}, {"problem", one.problem}, {"advice", one.advice}});
    return context.print_json({{"version", node.settings.version.to_string()}, {"findings", std::move(rows)}});
  }
  for (const auto& one : findings)
    context.out << fmt::format("{}: {}\n  {}\n", one.name, printable(one.problem), printable(one.advice));
  if (findings.empty()) context.out << "containerd runs images through Varve, and nothing is in the way\n";
}

void add_common(CLI::App& command, ContainerdArguments& arguments) {
  command.add_option("--version", arguments.version, "Of containerd; else the one in PATH is asked");
  command.add_option("--config", arguments.config, "containerd's file; /etc/containerd/config.toml");
  command.add_option("--address", arguments.address,
                     "The snapshotter's socket; else the one that `varve snapshotter` takes");
  auto* k3s = command.add_flag("--k3s", arguments.k3s, "The containerd of k3s, by a template made of its file");
  command.add_flag("--rke2", arguments.rke2, "The same for rke2")->excludes(k3s);
}

}  // namespace

void add_containerd_command(CLI::App& app, Context& context) {
  auto* containerd =
      app.add_subcommand("containerd", "Makes Varve containerd's snapshotter, and says what is in the way");
  containerd->require_subcommand(1);
  containerd->footer("Examples:\n  varve containerd configure\n  varve containerd check");

  const auto arguments = std::make_shared<ContainerdArguments>();
  auto* set = containerd->add_subcommand("configure", "Prints what containerd's configuration needs, or merges it");
  add_common(*set, *arguments);
  set->add_flag("--write", arguments->write, "Merge it into the file; what was there is kept beside it");
  set->footer(
      "Examples:\n  varve containerd configure\n  varve containerd configure --write\n"
      "  varve containerd configure --version 2.1.4 --config ./config.toml --write\n"
      "  varve containerd configure --version 2.0 --k3s --write\n\n"
      "All other lines of the file stay; a value that is replaced stays as a comment. What cannot be merged with "
      "certainty is refused with its line.");
  set->callback([&context, arguments] { configure(context, *arguments); });

  const auto looked_at = std::make_shared<ContainerdArguments>();
  auto* look = containerd->add_subcommand("check", "What keeps this machine from running images through Varve well");
  add_common(*look, *looked_at);
  look->footer("Examples:\n  varve containerd check\n  varve containerd check --json\n\nExits with 3 if something is.");
  look->callback([&context, looked_at] { check(context, *looked_at); });
}

}  // namespace varve::cli
