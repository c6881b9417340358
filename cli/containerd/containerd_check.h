#pragma once
// What on this machine keeps containerd from running images through Varve, or makes it do so badly: the troubles that
// people have with other lazy snapshotters, as far as they can be seen before they come.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/containerd/containerd_config.h"
#include "fuse/control/control_messages.h"

namespace varve::cli {

struct ContainerdFinding {
  std::string name;     // for scripts: "socket", "configuration", "exports-root"...
  std::string problem;  // what is wrong, with its object
  std::string advice;   // what to do
};

// A machine as it is looked at.
struct ContainerdNode {
  std::filesystem::path config_file;
  ContainerdSettings settings;
  std::optional<fuse::DaemonStatus> daemon;  // absent: none runs
  std::string no_kernel_mode;                // why kernel mode cannot be had; "" if it can
  std::filesystem::path proc = "/proc";
  std::filesystem::path systemd_units = "/etc/systemd/system";  // where enabled units are linked
  bool has_systemd = false;
};

// In the order in which they should be mended. Throws CorruptData if the configuration is no TOML.
std::vector<ContainerdFinding> check_containerd(const ContainerdNode& node);

}  // namespace varve::cli
