#include "fuse/session/bundle.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "fuse/session/runtimes/seccomp_profile.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;  // environments are most of it
constexpr std::size_t kMaxHostname = 64;             // as the kernel keeps it
constexpr int kCpuPeriod = 100'000;                  // microseconds, the kernel's own
constexpr std::string_view kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Capability numbers are of linux/capability.h.
constexpr std::pair<int, std::string_view> kDefaultCapabilities[] = {
    {0, "CAP_CHOWN"},        {1, "CAP_DAC_OVERRIDE"},
    {3, "CAP_FOWNER"},       {4, "CAP_FSETID"},
    {5, "CAP_KILL"},         {6, "CAP_SETGID"},
    {7, "CAP_SETUID"},       {8, "CAP_SETPCAP"},
    {13, "CAP_NET_RAW"},     {10, "CAP_NET_BIND_SERVICE"},
    {18, "CAP_SYS_CHROOT"},  {27, "CAP_MKNOD"},
    {29, "CAP_AUDIT_WRITE"}, {31, "CAP_SETFCAP"},
};

// Keeps the order in which names first appear.
class Variables {
 public:
  void set(const std::string& assignment) {
    const auto name = assignment.substr(0, assignment.find('='));
    for (auto& one : assignments_) {
      if (one.compare(0, name.size() + 1, name + '=') != 0) continue;
      one = assignment;
      return;
    }
    assignments_.push_back(assignment);
  }
  std::vector<std::string> take() { return std::move(assignments_); }

 private:
  std::vector<std::string> assignments_;
};

std::optional<std::string> own_assignment(const std::vector<std::string>& own_environment, const std::string& name) {
  for (const auto& one : own_environment)
    if (one.starts_with(name + '=')) return one;
  return std::nullopt;
}

json mounts_json(const SessionSpec& spec) {
  json mounts = json::array();
  for (const auto& mount : spec.mounts)
    mounts.push_back({{"destination", mount.destination},
                      {"type", mount.type},
                      {"source", mount.source},
                      {"options", mount.options}});
  return mounts;
}

json process_json(const SessionSpec& spec) {
  // A user that is not root starts with nothing, but may gain through setuid programs what the bounding set allows.
  const auto held = spec.user.uid == 0 ? spec.capabilities : std::vector<std::string>{};
  json user = {{"uid", spec.user.uid}, {"gid", spec.user.gid}};
  if (!spec.user.groups.empty()) user["additionalGids"] = spec.user.groups;
  return {{"terminal", spec.terminal},
          {"user", user},
          {"args", spec.args},
          {"env", spec.env},
          {"cwd", spec.working_dir},
          {"capabilities",
           {{"bounding", spec.capabilities}, {"effective", held}, {"permitted", held}, {"inheritable", json::array()}}},
          {"noNewPrivileges", false}};
}

json argument_json(const SeccompArgument& argument) {
  using Is = SeccompArgument::Is;
  if (argument.is == Is::kMaskedEqual)
    return {{"index", argument.index},
            {"op", "SCMP_CMP_MASKED_EQ"},
            {"value", argument.mask},
            {"valueTwo", argument.value}};
  return {{"index", argument.index},
          {"op", argument.is == Is::kEqual ? "SCMP_CMP_EQ" : "SCMP_CMP_NE"},
          {"value", argument.value}};
}

json seccomp_json() {
  auto calls = json::array();
  for (const auto& rule : seccomp_rules()) {
    json call = {{"names", rule.names},
                 {"action", rule.action == SeccompAction::kAllow ? "SCMP_ACT_ALLOW" : "SCMP_ACT_ERRNO"}};
    if (rule.action == SeccompAction::kRefuse) call["errnoRet"] = EPERM;
    if (rule.argument) call["args"] = json::array({argument_json(*rule.argument)});
    calls.push_back(std::move(call));
  }
  return {{"defaultAction", "SCMP_ACT_ERRNO"},
          {"defaultErrnoRet", ENOSYS},
          {"architectures", seccomp_architectures()},
          {"syscalls", std::move(calls)}};
}

json mappings_json(const IdMap& map) {
  auto mappings = json::array();
  for (const auto& range : map.ranges())
    mappings.push_back({{"containerID", range.inside}, {"hostID", range.outside}, {"size", range.count}});
  return mappings;
}

json devices_json(const SessionSpec& spec) {
  auto rules = json::array({{{"allow", false}, {"access", "rwm"}}});
  for (const auto& rule : spec.device_rules)
    rules.push_back({{"allow", true},
                     {"type", std::string(1, rule.type)},
                     {"major", rule.major},
                     {"minor", rule.minor},
                     {"access", rule.access}});
  return rules;
}

void add_limits(json& resources, const Limits& limits) {
  if (limits.memory_bytes != 0) {
    resources["memory"] = {{"limit", limits.memory_bytes}};
    if (counts_swap()) resources["memory"]["swap"] = limits.memory_bytes;  // of both together
  }
  if (limits.cpus != 0) resources["cpu"] = {{"quota", std::llround(limits.cpus * kCpuPeriod)}, {"period", kCpuPeriod}};
  if (limits.pids != 0) resources["pids"] = {{"limit", limits.pids}};
}

json linux_json(const SessionSpec& spec) {
  json pid = {{"type", "pid"}};
  if (!spec.pid_namespace.empty()) pid["path"] = spec.pid_namespace;
  json namespaces = json::array({pid, {{"type", "mount"}}, {{"type", "ipc"}}, {{"type", "uts"}}});
  // Runtimes bring up the loopback of one that they make.
  if (spec.own_network) namespaces.push_back({{"type", "network"}});
  json part = {{"namespaces", std::move(namespaces)},
               {"maskedPaths", spec.masked_paths},
               {"readonlyPaths", spec.readonly_paths},
               {"seccomp", seccomp_json()}};
  if (!spec.cgroups_path.empty()) part["cgroupsPath"] = spec.cgroups_path;
  if (!spec.own_ids.is_root) {
    part["namespaces"].push_back({{"type", "user"}, {"path", spec.user_namespace}});
    part["uidMappings"] = mappings_json(spec.own_ids.uids);
    part["gidMappings"] = mappings_json(spec.own_ids.gids);
  }
  // Runtimes add the harmless devices to this; a plain user has no say over cgroups and needs none, as he cannot make
  // devices.
  if (!spec.in_user_namespace || !spec.own_ids.is_root) {
    part["resources"] = {{"devices", devices_json(spec)}};
    add_limits(part["resources"], spec.limits);
  }
  return part;
}

std::string text_of(const json& document) {
  try {
    return document.dump(1);
  } catch (const json::exception&) {
    throw UsageError("the command or its environment holds bytes that are not UTF-8, which config.json cannot carry");
  }
}

}  // namespace

Volume Volume::parse(std::string_view text) {
  const auto first = text.find(':');
  if (first == text.npos || first == 0) fail<UsageError>("--volume {}: write SRC:DST or SRC:DST:ro", text);
  const auto second = text.find(':', first + 1);
  Volume volume;
  volume.destination = std::string(text.substr(first + 1, second == text.npos ? text.npos : second - first - 1));
  if (!volume.destination.starts_with('/'))
    fail<UsageError>("--volume {}: the place in the session must be absolute", text);
  auto options = second == text.npos ? std::string_view() : text.substr(second + 1);
  while (!options.empty()) {
    const auto end = std::min(options.find(','), options.size());
    const auto option = options.substr(0, end);
    options.remove_prefix(std::min(end + 1, options.size()));
    if (option != "ro" && option != "rw")
      fail<UsageError>("--volume {}: the option '{}' is not known; ro and rw are", text, option);
    volume.read_only = option == "ro";
  }
  const std::filesystem::path given(text.substr(0, first));
  std::error_code error;
  volume.source = std::filesystem::canonical(given, error);
  if (error) fail<UsageError>("--volume {}: {}: {}", text, given.string(), error.message());
  return volume;
}

std::string Volume::to_string() const {
  return fmt::format("{}:{}{}", source.string(), destination, read_only ? ":ro" : "");
}

Tmpfs Tmpfs::parse(std::string_view text) {
  const auto colon = std::min(text.find(':'), text.size());
  Tmpfs tmpfs{.destination = std::string(text.substr(0, colon)), .options = {"nosuid", "nodev"}};
  if (!tmpfs.destination.starts_with('/') || tmpfs.destination == "/")
    fail<UsageError>("--tmpfs {}: write DST or DST:size=64m, where DST is a folder of the session", text);
  bool executable = false;
  bool has_mode = false;
  for (const auto option : split_words(text.substr(std::min(colon + 1, text.size())), ",")) {
    const auto value = option.substr(std::min(option.find('=') + 1, option.size()));
    const bool octal = !value.empty() && value.size() <= 4 && value.find_first_not_of("01234567") == value.npos;
    const auto digits = std::min(value.find_first_not_of("0123456789"), value.size());
    const auto unit = value.substr(digits);
    const bool amount =
        digits != 0 && digits <= 15 &&
        (unit.empty() || unit == "%" || (unit.size() == 1 && std::string_view("kmgKMG").find(unit[0]) != unit.npos));
    if (option == "exec" || option == "noexec") {
      executable = option == "exec";
    } else if (option == "ro" || option == "rw" || (option.starts_with("mode=") && octal) ||
               (option.starts_with("size=") && amount)) {
      tmpfs.options.emplace_back(option);
      has_mode = has_mode || option.starts_with("mode=");
    } else {
      fail<UsageError>("--tmpfs {}: '{}' is not known; size=64m, mode=1777, ro, rw, exec and noexec are", text, option);
    }
  }
  if (!executable) tmpfs.options.emplace_back("noexec");
  if (!has_mode) tmpfs.options.emplace_back("mode=1777");
  return tmpfs;
}

void check_hostname(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
  if (name.empty() || name.size() > kMaxHostname || name.find_first_not_of(kAllowed) != name.npos ||
      name.front() == '-' || name.front() == '.')
    fail<UsageError>(
        "--hostname {}: a name has at most {} letters, digits, '.' or '-', and begins with none of these two", name,
        kMaxHostname);
}

std::vector<std::string> parse_env_file(std::string_view text, const std::string& file) {
  std::vector<std::string> lines;
  std::size_t number = 0;
  for (auto line : split(text, "\n")) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const auto name = line.substr(0, line.find('='));
    if (name.empty() || name.find_first_of(" \t") != name.npos || line.find('\0') != line.npos)
      fail<UsageError>("--env-file {}, line {}: write NAME=value or NAME", file, number);
    lines.emplace_back(line);
  }
  return lines;
}

std::vector<std::string> command_line(const oci::ImageConfig& config, const CommandOptions& options) {
  std::vector<std::string> words;
  if (options.entrypoint) {
    if (!options.entrypoint->empty()) words.push_back(*options.entrypoint);
  } else {
    words = config.entrypoint;
  }
  // An image's Cmd is written for its own Entrypoint.
  const auto& rest = !options.command.empty() || options.entrypoint ? options.command : config.cmd;
  words.insert(words.end(), rest.begin(), rest.end());
  if (words.empty() && options.entrypoint)
    throw UsageError(
        "--entrypoint '' leaves no command, as the image's own goes with its entrypoint: say one, e.g. `varve run "
        "--entrypoint '' IMAGE /bin/sh`");
  if (words.empty() || words.front().empty())
    throw UsageError("the image names no command: say one, e.g. `varve run IMAGE /bin/sh`");
  return words;
}

std::string absolute_working_dir(const oci::ImageConfig& config, const CommandOptions& options) {
  const auto& wanted = options.working_dir.empty() ? config.working_dir : options.working_dir;
  return wanted.starts_with('/') ? wanted : "/" + wanted;
}

std::vector<std::string> session_environment(const oci::ImageConfig& config, const CommandOptions& options,
                                             const EnvironmentDefaults& defaults,
                                             const std::vector<std::string>& own_environment) {
  Variables variables;
  variables.set("PATH=" + std::string(kDefaultPath));
  variables.set("TERM=" + defaults.term);
  variables.set("HOME=" + defaults.home);
  variables.set("HOSTNAME=" + defaults.hostname);
  for (const auto& one : config.env)
    if (const auto equals = one.find('='); equals != one.npos && equals != 0) variables.set(one);
  for (const auto& one : options.env) {
    const auto equals = one.find('=');
    if (equals == 0 || one.empty()) fail<UsageError>("--env {}: write NAME=value or NAME", one);
    if (equals != one.npos) {
      variables.set(one);
    } else if (const auto own = own_assignment(own_environment, one)) {
      variables.set(*own);
    }
  }
  return variables.take();
}

std::vector<std::string> with_variables(const std::vector<std::string>& environment,
                                        const std::vector<std::string>& more) {
  Variables variables;
  for (const auto& one : environment) variables.set(one);
  for (const auto& one : more) variables.set(one);
  return variables.take();
}

SpecMount bind_mount(const std::filesystem::path& source, const std::string& destination, bool read_only, bool file) {
  // rbind: what is mounted below the source comes along, as users expect of their home folders.
  return {.destination = destination,
          .type = "bind",
          .source = source.string(),
          .options = {file ? "bind" : "rbind", "rprivate", read_only ? "ro" : "rw"},
          .file = file};
}

std::vector<SpecMount> usual_mounts(bool in_user_namespace, const IdMap& gids) {
  constexpr std::uint32_t kTtyGroup = 5;
  std::vector<std::string> pts = {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"};
  if (gids.maps(kTtyGroup)) pts.push_back("gid=5");
  std::vector<SpecMount> mounts = {
      {"/proc", "proc", "proc", {"nosuid", "noexec", "nodev"}, false},
      {"/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"}, false},
      {"/dev/pts", "devpts", "devpts", pts, false},
      // No size: the kernel's default is half of the memory. Data loaders of machine learning pass tensors through it,
      // and the 64 MiB of other runtimes end them.
      {"/dev/shm", "tmpfs", "shm", {"nosuid", "noexec", "nodev", "mode=1777"}, false},
      {"/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"}, false},
  };
  if (in_user_namespace) {
    mounts.push_back({"/sys", "none", "/sys", {"rbind", "rslave", "nosuid", "noexec", "nodev", "ro"}, false});
  } else {
    mounts.push_back({"/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"}, false});
    mounts.push_back({"/sys/fs/cgroup", "cgroup", "cgroup", {"nosuid", "noexec", "nodev", "relatime", "ro"}, false});
  }
  return mounts;
}

std::vector<std::string> default_capabilities(std::uint64_t bounding_set) {
  std::vector<std::string> names;
  for (const auto& [number, name] : kDefaultCapabilities)
    if ((bounding_set >> number & 1) != 0) names.emplace_back(name);
  return names;
}

std::vector<std::string> default_masked_paths() {
  return {"/proc/acpi",
          "/proc/asound",
          "/proc/kcore",
          "/proc/keys",
          "/proc/latency_stats",
          "/proc/timer_list",
          "/proc/timer_stats",
          "/proc/sched_debug",
          "/proc/scsi",
          "/sys/firmware",
          "/sys/devices/virtual/powercap"};
}

std::vector<std::string> default_readonly_paths() {
  return {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"};
}

std::string to_config_json(const SessionSpec& spec) {
  json config = {
      {"ociVersion", "1.0.2"},       {"root", {{"path", spec.rootfs.string()}, {"readonly", spec.read_only}}},
      {"hostname", spec.hostname},   {"process", process_json(spec)},
      {"mounts", mounts_json(spec)}, {"linux", linux_json(spec)}};
  if (!spec.ready_fifo.empty()) {
    // A hook is sent the container's state. If it did not read that, runc would get SIGPIPE, and hand it on to the
    // command.
    const auto script =
        "while read -r line || [ -n \"$line\" ]; do printf '%s\\n' \"$line\"; done > \"$1\"; echo ready > \"$1\"";
    config["hooks"] = {
        {"poststart", json::array({{{"path", "/bin/sh"}, {"args", {"sh", "-c", script, "sh", spec.ready_fifo}}}})}};
  }
  return text_of(config);
}

std::string to_process_json(const SessionSpec& spec) { return text_of(process_json(spec)); }

SessionSpec read_process(ByteView config_json, const std::string& name) {
  const auto process = JsonValue::parse(config_json, name, {.bytes = kMaxConfigBytes})["process"];
  SessionSpec spec;
  spec.args = process["args"].texts();
  spec.env = process["env"].texts();
  spec.working_dir = process["cwd"].text();
  spec.terminal = process["terminal"].flag();
  spec.user.uid = process["user"]["uid"].number<std::uint32_t>();
  spec.user.gid = process["user"]["gid"].number<std::uint32_t>();
  if (const auto groups = process["user"].maybe("additionalGids"))
    for (const auto& group : groups.items()) spec.user.groups.push_back(group.number<std::uint32_t>());
  spec.capabilities = process["capabilities"]["bounding"].texts();
  return spec;
}

}  // namespace varve::fuse
