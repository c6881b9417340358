#pragma once
// containerd's <dir>/<host>/hosts.toml, as its page "Registry Configuration" has it.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/oci/internal/source.h"

namespace varve::oci::internal {

struct HostsFile {
  // In the order in which they are asked: the tables of `host`, then the server. Without repository and names_host.
  // Absent server: the registry that the image's name names.
  std::vector<Source> mirrors;
  std::optional<Source> server;
  // Of a server that is not named: keys at the top of the file are about the registry itself.
  Source own;
};

// `what` names the file; paths in it are relative to `folder`. Throws CorruptData "FILE:LINE: why" for what containerd
// refuses too, and for what is no URL; keys that are unknown are logged.
HostsFile parse_hosts_toml(std::string_view text, const std::string& what, const std::filesystem::path& folder);

// Where the file of a registry may lie below `dir`, best first: "host_5000_", "host:5000", "_default".
std::vector<std::filesystem::path> host_folders(const std::filesystem::path& dir, const std::string& host);

}  // namespace varve::oci::internal
