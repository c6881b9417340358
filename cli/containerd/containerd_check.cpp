#include "cli/containerd/containerd_check.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/unix_socket.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigure = "`varve containerd configure --write`, then restart containerd";
constexpr const char* kUnits[] = {"varve-snapshotter.service", "varve-snapshotter.socket"};

// "" if somebody listens there.
std::string why_nobody_listens(const fs::path& path) {
  try {
    const auto socket = make_unix_socket(SOCK_STREAM | SOCK_NONBLOCK);
    return connect_unix_socket(socket, path, "the snapshotter") ? "" : "nobody answers";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Processes of that name, by the kernel's list.
std::vector<std::string> processes_named(const fs::path& proc, std::string_view name) {
  std::vector<std::string> pids;
  std::error_code error;
  for (fs::directory_iterator at(proc, error), end; !error && at != end; at.increment(error)) {
    const auto pid = at->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    try {
      const auto text = read_file_if_there(at->path() / "comm", 256);
      if (text && as_text(*text) == std::string(name) + '\n') pids.push_back(pid);
    } catch (const std::exception&) {  // not ours to look at
    }
  }
  return pids;
}

std::string namespace_of(const fs::path& process) {
  std::error_code error;
  const auto link = fs::read_symlink(process / "ns/mnt", error);
  return error ? std::string() : link.string();
}

class Check {
 public:
  explicit Check(const ContainerdNode& node) : node_(node) {}

  std::vector<ContainerdFinding> run() {
    look_at_configuration();
    look_at_socket();
    look_at_units();
    look_at_root();
    look_at_daemon();
    look_at_namespace();
    look_at_other_snapshots();
    return std::move(findings_);
  }

 private:
  void find(std::string name, std::string problem, std::string advice) {
    findings_.push_back({.name = std::move(name), .problem = std::move(problem), .advice = std::move(advice)});
  }

  void look_at_configuration() {
    const auto text = read_file_if_there(node_.config_file, kMaxTomlBytes);
    if (!text)
      return find(
          "configuration",
          fmt::format("{}: is not there: containerd runs with its defaults, without Varve", node_.config_file.string()),
          std::string(kConfigure));
    const auto what = node_.config_file.string();
    file_ = parse_toml(as_text(*text), what);
    for (const auto& missing : missing_settings(file_, what, node_.settings)) {
      const bool disk = missing.find("root of [proxy_plugins") != std::string::npos;
      const bool labels = missing.find("annotations") != std::string::npos;
      const bool ids = missing.find("capabilities") != std::string::npos;
      find(disk     ? "exports-root"
           : labels ? "labels"
           : ids    ? "user-namespaces"
                    : "configuration",
           missing + (disk ? ": kubelet finds no file system to measure, and its disk limits and image collection fail"
                      : labels ? ": pulls do not say which image a layer is of, so that all of it is fetched"
                      : ids    ? ": for each user namespace (hostUsers: false) a whole image is copied"
                               : ""),
           std::string(kConfigure));
    }
    try {
      for (const auto& plugin : toml_strings(file_, "disabled_plugins", what))
        if (plugin == "cri" || plugin == "io.containerd.grpc.v1.cri")
          find("cri-disabled",
               fmt::format("{}: disabled_plugins names {}: kubelet cannot use this containerd", what, plugin),
               "take it out of the list if this is a node of Kubernetes; Docker does without");
    } catch (const CorruptData& error) {
      find("configuration", error.what(), "mend that line");
    }
  }

  void look_at_socket() {
    const auto& socket = node_.settings.socket;
    if (const auto why = why_nobody_listens(socket); !why.empty())
      find("socket", fmt::format("{}: no snapshotter listens there: {}", socket.string(), why),
           "start it before containerd: `systemctl enable --now varve-snapshotter.socket varve-snapshotter.service`; "
           "images that containerd has lost from its list meanwhile are pulled anew");
  }

  void look_at_units() {
    if (!node_.has_systemd) return;
    std::error_code error;
    for (const auto* unit : kUnits) {
      bool enabled = false;
      for (fs::recursive_directory_iterator at(node_.systemd_units, error), end; !error && at != end && !enabled;
           at.increment(error))
        enabled = at->path().filename() == unit && at->path().parent_path() != node_.systemd_units;
      if (!enabled)
        find("unit", fmt::format("{} is not enabled: after a reboot containerd starts without its snapshotter", unit),
             fmt::format("`systemctl enable {}`", unit));
    }
  }

  void look_at_root() {
    struct stat root {};
    struct stat store {};
    const auto& path = node_.settings.root;
    if (::stat(path.c_str(), &root) != 0)
      return find("exports-root", fmt::format("{}: {}", path.string(), std::strerror(errno)),
                  "start the daemon with this --root once, or give the one that is used");
    if (::stat((path / "store").c_str(), &store) == 0 && store.st_dev != root.st_dev)
      find("exports-root",
           fmt::format("{}: lies on another file system than {}, whose free space kubelet watches",
                       (path / "store").string(), path.string()),
           "put both on one file system");
  }

  void look_at_daemon() {
    if (!node_.no_kernel_mode.empty())
      find("kernel-mode",
           node_.no_kernel_mode +
               ": images are mounted in fuse mode, which user namespaces (hostUsers: "
               "false) cannot use",
           "Linux 6.12 or later with EROFS (`modprobe erofs`)");
    if (!node_.daemon)
      return find("daemon", fmt::format("no daemon runs for {}", node_.settings.root.string()),
                  "`systemctl enable --now varve.service`");
    if (node_.daemon->daemon.keeper == "none")
      find("keeper", "nothing keeps the daemon's mounts if it dies: running pods would lose their files",
           "its log says why");
    if (node_.daemon->store.max_bytes == 0)
      find(
          "store-size",
          "the store may fill the disk: kubelet takes a lazy image for as large as it was pulled and stops collecting too "
          "early",
          "set store-size under [daemon] in varve.toml");
  }

  // What a service with a mount namespace of its own mounts is seen by nobody else.
  void look_at_namespace() {
    if (!node_.daemon) return;
    const auto ours = namespace_of(node_.proc / std::to_string(node_.daemon->daemon.pid));
    for (const auto& pid : processes_named(node_.proc, "containerd")) {
      const auto theirs = namespace_of(node_.proc / pid);
      if (!ours.empty() && !theirs.empty() && ours != theirs)
        find("mount-namespace",
             fmt::format(
                 "containerd (process {}) runs in another mount namespace than Varve's daemon: containers may not "
                 "see its mounts",
                 pid),
             "no PrivateMounts=, ProtectSystem= or PrivateTmp= in either unit; mounts of / are to be shared");
    }
  }

  void look_at_other_snapshots() {
    fs::path root = "/var/lib/containerd";
    if (const auto* set = file_.find("root"); set != nullptr && !set->text.empty()) root = set->text;
    const auto snapshots = root / "io.containerd.snapshotter.v1.overlayfs/snapshots";
    std::error_code error;
    std::uint64_t count = 0;
    for (fs::directory_iterator at(snapshots, error), end; !error && at != end; at.increment(error)) ++count;
    if (count > 0)
      find("other-snapshots",
           fmt::format(
               "{}: {} layers were unpacked before: images that are here need to be pulled anew, or pods fail with "
               "\"not found\"",
               snapshots.string(), count),
           "drain the node, remove its images (`crictl rmi --all`), then let pods come back");
  }

  const ContainerdNode& node_;
  TomlValue file_;
  std::vector<ContainerdFinding> findings_;
};

}  // namespace

std::vector<ContainerdFinding> check_containerd(const ContainerdNode& node) { return Check(node).run(); }

}  // namespace varve::cli
