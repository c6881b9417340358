#pragma once
// containerd's configuration file: what it needs so that Varve is its snapshotter, and how that gets into a file which
// somebody else wrote. Format: containerd's docs/man/containerd-config.toml.5.md, versions 2 to 4.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text/toml.h"

namespace varve::cli {

struct ContainerdVersion {
  int major = 0;
  int minor = 0;
  int patch = 0;
  auto operator<=>(const ContainerdVersion&) const = default;
  std::string to_string() const;
};

// "1.7.24", "v2.1", or what `containerd --version` prints. Throws UsageError for anything else, and Unsupported for
// versions that no proxy plugin of ours runs with (before 1.6, after 2).
ContainerdVersion parse_containerd_version(std::string_view text);

struct ContainerdSettings {
  ContainerdVersion version;
  std::filesystem::path socket;          // of `varve snapshotter`
  std::filesystem::path root;            // of Varve's state: kubelet asks for the free space of its file system
  std::string platform = "linux/amd64";  // for the transfer service
};

// One key of a table, each name of the path as it is without quotes; `value` as TOML.
struct ContainerdSetting {
  std::vector<std::string> table;
  std::string key;
  std::string value;
};
std::vector<ContainerdSetting> settings_for(const ContainerdSettings& settings);

// The file as it has to be; the same text if nothing is missing. All lines that are not concerned stay as they are; a
// value that is replaced stays as a comment. Text that is empty, or only comments, becomes a file of the version's
// newest format. Throws Unsupported, naming the line, for what it cannot change without understanding more of it.
std::string merge_settings(std::string_view text, std::string_view what, const ContainerdSettings& settings);

// What of it a file lacks or has otherwise, a line each: "snapshotter of [plugins."io…".containerd] is not "varve"".
// Throws CorruptData for text that is no TOML.
std::vector<std::string> missing_settings(const TomlValue& file, std::string_view what,
                                          const ContainerdSettings& settings);

}  // namespace varve::cli
