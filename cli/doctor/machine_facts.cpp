#include "cli/doctor/machine_facts.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "cli/doctor/secret_filter.h"
#include "core/base/error_text.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"
#include "core/base/text/strings.h"
#include "core/trust/containers_policy.h"
#include "core/trust/public_key.h"
#include "fuse/mount/mount_table.h"

namespace varve::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr auto kToolPatience = std::chrono::seconds(3);
constexpr std::uint64_t kMaxSmallFile = 1 << 20;
constexpr std::uint64_t kLogTail = 256 << 10;
constexpr std::size_t kLogLines = 20;
constexpr const char* kOurUnits[] = {"varve.service",        "varve-snapshotter.service", "varve-snapshotter.socket",
                                     "varve-podman.service", "varve-gpu-check.timer",     "varve-gpu-check.service",
                                     "varve-webhook.service"};

// "" if it cannot be read.
std::string small_file(const fs::path& path) {
  try {
    const auto bytes = read_file_if_there(path, kMaxSmallFile);
    return bytes ? std::string(as_text(*bytes)) : std::string();
  } catch (const std::exception&) {
    return {};
  }
}

std::string first_line(std::string_view text) { return std::string(varve::trimmed(text.substr(0, text.find('\n')))); }

// What a tool says; absent if it is not here, fails or takes too long.
std::optional<std::string> said_by(std::vector<std::string> words, const CancelFlag& cancel) {
  try {
    ChildProgram program;
    program.words = std::move(words);
    program.limit = kToolPatience;
    auto done = run_child(program, cancel);
    if (done.exit_status != 0 || done.timed_out) return std::nullopt;
    return std::move(done.out);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool knows_file_system(std::string_view listed, std::string_view name) {
  for (const auto line : split_words(listed, "\n"))
    if (varve::trimmed(line.substr(line.rfind('\t') + 1)) == name) return true;
  return false;
}

// Also what the kernel would load.
bool has_file_system(const std::string& name, const std::string& release) {
  if (knows_file_system(small_file("/proc/filesystems"), name)) return true;
  const auto folder = fs::path("/lib/modules") / release;
  return small_file(folder / "modules.dep").find(fmt::format("/{}.ko", name)) != std::string::npos ||
         small_file(folder / "modules.builtin").find(fmt::format("/{}.ko", name)) != std::string::npos;
}

std::string kernel_release() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "";
}

json user_namespaces() {
  const auto limit = first_line(small_file("/proc/sys/user/max_user_namespaces"));
  if (limit.empty() || limit == "0") return "none: user.max_user_namespaces is 0, or the kernel has none";
  if (first_line(small_file("/proc/sys/kernel/unprivileged_userns_clone")) == "0")
    return "root only: kernel.unprivileged_userns_clone is 0";
  if (first_line(small_file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")) == "1")
    return "root only: kernel.apparmor_restrict_unprivileged_userns is 1";
  return true;
}

std::string cgroup_versions() {
  std::error_code error;
  const fs::path cgroups = "/sys/fs/cgroup";
  if (fs::exists(cgroups / "cgroup.controllers", error)) return "v2";
  const bool both = fs::exists(cgroups / "unified/cgroup.controllers", error);
  if (fs::exists(cgroups / "memory", error)) return both ? "v1+v2" : "v1";
  return both ? "v2" : "none";
}

// "NAME=value" lines, as systemctl and os-release write them.
std::string field_of(std::string_view lines, std::string_view name) {
  for (const auto line : split_words(lines, "\n"))
    if (line.starts_with(name) && line.substr(name.size()).starts_with('='))
      return std::string(varve::trimmed(line.substr(name.size() + 1), "\" \r"));
  return {};
}

std::vector<std::string> warnings_in(std::string_view log) {
  std::vector<std::string> lines;
  for (const auto line : split_words(log, "\n"))
    if (line.find(" error ") != line.npos || line.find(" warning ") != line.npos ||
        line.find(" critical ") != line.npos)
      lines.emplace_back(line);
  if (lines.size() > kLogLines) lines.erase(lines.begin(), lines.end() - std::ptrdiff_t(kLogLines));
  return lines;
}

// "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF", of a file whose device and inode end so; 0 if it is not of that.
pid_t flock_holder(std::string_view line, std::string_view file_end) {
  const auto words = split_words(line, " ");
  pid_t pid = 0;
  if (words.size() < 6 || words[1] != "FLOCK" || !words[5].ends_with(file_end)) return 0;
  std::from_chars(words[4].data(), words[4].data() + words[4].size(), pid);
  return pid;
}

json process_facts(pid_t pid) {
  const auto process = fs::path("/proc") / std::to_string(pid);
  std::error_code unreadable;
  const auto program = fs::read_symlink(process / "exe", unreadable).string();
  const auto status = small_file(process / "status");
  const auto at = status.find("State:");
  return {{"pid", pid},
          {"state", at == status.npos ? "" : first_line(std::string_view(status).substr(at + 6))},
          {"program", program}};
}

json log_file_facts(const fs::path& file) {
  json facts{{"source", file.string()}, {"lines", json::array()}};
  try {
    const auto fd = open_file(file, O_RDONLY);
    const auto size = file_size(fd.get(), file);
    Bytes tail(std::size_t(std::min(size, kLogTail)));
    pread_exactly(fd.get(), size - tail.size(), tail, file.string());
    facts["lines"] = warnings_in(as_text(tail));
  } catch (const std::exception& error) {
    std::error_code none;
    if (fs::exists(file, none) || none) facts["trouble"] = error_text(error);
  }
  return facts;
}

}  // namespace

json kernel_facts() {
  utsname name{};
  if (::uname(&name) != 0) return nullptr;
  return {{"release", name.release},
          {"machine", name.machine},
          {"distribution", field_of(small_file("/etc/os-release"), "PRETTY_NAME")}};
}

json ability_facts(const CancelFlag& cancel) {
  const auto release = kernel_release();
  json runtimes = json::object();
  for (const std::string name : {"runc", "crun", "nvidia-container-runtime"}) {
    const auto said = said_by({name, "--version"}, cancel);
    runtimes[name] = said ? json(first_line(*said)) : json();
  }
  const auto fusermount = said_by({"fusermount3", "--version"}, cancel);
  return {{"erofs", has_file_system("erofs", release)},
          {"fuse", ::access("/dev/fuse", R_OK | W_OK) == 0},
          {"fusermount3", fusermount ? json(first_line(*fusermount)) : json()},
          {"overlay", has_file_system("overlay", release)},
          {"user_namespaces", user_namespaces()},
          {"cgroups", cgroup_versions()},
          {"systemd", ::access("/run/systemd/system", F_OK) == 0},
          {"runtimes", std::move(runtimes)}};
}

json disk_facts(const fs::path& root) {
  auto place = root;
  struct ::statvfs status {};
  while (::statvfs(place.c_str(), &status) != 0) {
    if (!place.has_parent_path() || place == place.parent_path()) return nullptr;
    place = place.parent_path();
  }
  struct ::stat device {};
  std::string type;
  if (::stat(place.c_str(), &device) == 0) {
    const auto number = fmt::format("{}:{}", major(device.st_dev), minor(device.st_dev));
    for (const auto& entry : fuse::read_mount_table())
      if (entry.device == number) type = entry.type;
  }
  return {{"path", place.string()},
          {"file_system", type},
          {"free_bytes", std::uint64_t(status.f_bavail) * status.f_frsize},
          {"total_bytes", std::uint64_t(status.f_blocks) * status.f_frsize},
          {"free_inodes", std::uint64_t(status.f_favail)},
          {"total_inodes", std::uint64_t(status.f_files)}};
}

json mount_facts(const fuse::DaemonPaths& paths) {
  const auto below = [](const fs::path& dir, const fs::path& folder) {
    return dir.string().starts_with(folder.string() + "/");
  };
  const auto table = fuse::read_mount_table();
  std::vector<fuse::MountEntry> ours;
  for (const auto& entry : table)
    if (entry.type == "fuse.varve" || below(entry.dir, paths.root) || below(entry.dir, paths.run_dir))
      ours.push_back(entry);
  // A tree is mounted below the folder of sockets, and shown where somebody wants it.
  auto found = json::array();
  for (const auto& entry : table)
    if (std::ranges::any_of(ours, [&](const auto& one) { return one.is_same(entry); }))
      found.push_back({{"dir", entry.dir.string()}, {"type", entry.type}});
  return found;
}

json unit_facts(const CancelFlag& cancel) {
  if (::access("/run/systemd/system", F_OK) != 0) return nullptr;
  std::vector<std::string> words{"systemctl", "show", "--property",
                                 "Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts"};
  words.insert(words.end(), std::begin(kOurUnits), std::end(kOurUnits));
  const auto said = said_by(std::move(words), cancel);
  if (!said) return nullptr;
  auto found = json::array();
  // A paragraph each.
  for (std::size_t at = 0; at < said->size();) {
    const auto end = std::min(said->find("\n\n", at), said->size());
    const auto unit = std::string_view(*said).substr(at, end - at);
    at = end + 2;
    if (field_of(unit, "LoadState") == "not-found") continue;
    found.push_back({{"name", field_of(unit, "Id")},
                     {"state", field_of(unit, "ActiveState") + " (" + field_of(unit, "SubState") + ")"},
                     {"enabled", field_of(unit, "UnitFileState")},
                     {"result", field_of(unit, "Result")},
                     {"restarts", field_of(unit, "NRestarts")}});
  }
  return found;
}

json log_facts(const fs::path& log_file, bool systemd, const CancelFlag& cancel) {
  json facts = json::array({log_file_facts(log_file)});
  if (!systemd) return facts;
  const auto said = said_by({"journalctl", "--unit", "varve*", "--priority", "warning", "--lines",
                             std::to_string(kLogLines), "--output", "short-iso", "--no-pager", "--quiet"},
                            cancel);
  json journal{{"source", "journalctl --unit 'varve*'"}, {"lines", json::array()}};
  if (!said) journal["trouble"] = "journalctl does not say";
  const auto lines = said.value_or("");
  for (const auto line : split_words(lines, "\n")) journal["lines"].push_back(std::string(line));
  facts.push_back(std::move(journal));
  return facts;
}

json credential_facts(const std::vector<oci::CredentialFile>& files) {
  auto found = json::array();
  for (const auto& file : files)
    if (file.there || !file.trouble.empty())
      found.push_back({{"file", file.path.string()},
                       {"registries", file.registries},
                       {"helpers", file.helpers},
                       {"trouble", file.trouble}});
  return found;
}

json trust_facts(const trust::TrustSettings& settings) {
  auto keys = json::array();
  const auto add = [&](const fs::path& file) {
    try {
      keys.push_back({{"file", file.string()}, {"id", trust::PublicKey::read(file).id()}, {"trouble", ""}});
    } catch (const std::exception& error) {
      keys.push_back({{"file", file.string()}, {"id", nullptr}, {"trouble", error_text(error)}});
    }
  };
  for (const auto& file : settings.keys) add(file);
  for (const auto& scope : settings.scopes)
    for (const auto& file : scope.keys) add(file);
  std::string policy = "none";
  try {
    if (settings.policy.empty() ? trust::ContainersPolicy::find() : trust::ContainersPolicy::find({settings.policy}))
      policy = settings.policy.empty() ? "where podman has it" : settings.policy.string();
  } catch (const std::exception& error) {
    policy = error_text(error);
  }
  return {{"index", trust::to_string(settings.index)},
          {"place", settings.place},
          {"keys", std::move(keys)},
          {"scopes", settings.scopes.size()},
          {"denied", settings.deny.size()},
          {"min_tool", settings.min_tool},
          {"policy", policy}};
}

json environment_facts() {
  constexpr std::string_view kRead[] = {
      "VARVE_",      "XDG_",         "SSL_CERT_", "REGISTRY_AUTH_FILE=", "DOCKER_CONFIG=", "PATH=",
      "http_proxy=", "https_proxy=", "no_proxy=", "HTTP_PROXY=",         "HTTPS_PROXY=",   "NO_PROXY=",
      "ALL_PROXY=",  "all_proxy=",   "LD_",       "CONTAINERS_",         "COSIGN_"};
  auto found = json::object();
  for (const auto& one : own_environment()) {
    const auto equals = one.find('=');
    const auto known = [&](std::string_view beginning) { return one.starts_with(beginning); };
    if (equals == one.npos || !std::ranges::any_of(kRead, known)) continue;
    const auto name = one.substr(0, equals);
    found[name] = names_a_secret(name) ? std::string(kMasked) : one.substr(equals + 1);
  }
  return found;
}

json lock_holder(const fs::path& file) {
  struct ::stat status {};
  if (::stat(file.c_str(), &status) != 0) return nullptr;
  const auto locks = small_file("/proc/locks");
  const auto inode = fmt::format(":{}", status.st_ino);
  const auto device = fmt::format("{:02x}:{:02x}{}", major(status.st_dev), minor(status.st_dev), inode);
  // Some file systems have another device there than stat(2) says.
  for (const auto& wanted : {device, inode})
    for (const auto line : split_words(locks, "\n"))
      if (const auto pid = flock_holder(line, wanted); pid > 0) return process_facts(pid);
  return nullptr;
}

}  // namespace varve::cli
