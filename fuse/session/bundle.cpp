#include "fuse/session/bundle.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "fuse/session/seccomp_profile.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

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
    auto rules = json::array({{{"allow", false}, {"access", "rwm"}}});
    for (const auto& rule : spec.device_rules)
      rules.push_back({{"allow", true},
                       {"type", std::string(1, rule.type)},
                       {"major", rule.major},
                       {"minor", rule.minor},
                       {"access", rule.access}});
    part["resources"] = {{"devices", std::move(rules)}};
  }
  return part;
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
  if (words.empty() || words.front().empty())
    throw UsageError("the image names no command: say one after --, e.g. `varve run IMAGE -- /bin/sh`");
  return words;
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
  json config = {{"ociVersion", "1.0.2"},       {"root", {{"path", spec.rootfs.string()}, {"readonly", false}}},
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
  try {
    return config.dump(1);
  } catch (const json::exception&) {
    throw UsageError("the command or its environment holds bytes that are not UTF-8, which config.json cannot carry");
  }
}

}  // namespace varve::fuse
