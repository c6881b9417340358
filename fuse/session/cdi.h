#pragma once
// Which device files, libraries and variables a session needs for a device: the specifications that a machine's driver
// leaves in /etc/cdi and /var/run/cdi. Container Device Interface SPEC.md 0.8
// (github.com/cncf-tags/container-device-interface); JSON and YAML.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varve::fuse {

inline constexpr std::uint64_t kMaxCdiFileBytes = 4 << 20;
inline constexpr std::size_t kMaxCdiNodes = 200'000;  // of a document, aliases of YAML counted each time
inline constexpr std::size_t kMaxCdiFiles = 1000;

struct CdiDeviceNode {
  std::string path;         // in the session
  std::string host_path;    // on the machine
  std::string permissions;  // for the device cgroup: letters of "rwm"; "" = "rwm"
};

struct CdiMount {
  std::string host_path;
  std::string container_path;
  std::vector<std::string> options;  // "ro" "nosuid" …
};

struct CdiHook {
  std::string name;               // "createContainer" …
  std::string path;               // program on the machine
  std::vector<std::string> args;  // args[0] included
  std::vector<std::string> env;
};

// What a session gets: all of the specification's file and of the devices asked for, in this order, each thing once.
struct CdiEdits {
  std::vector<std::string> env;  // NAME=value
  std::vector<CdiDeviceNode> devices;
  std::vector<CdiMount> mounts;
  std::vector<CdiHook> hooks;
  std::vector<std::uint32_t> additional_gids;
};

// All devices of this machine. Plain data.
class CdiRegistry {
 public:
  // Reads *.json, *.yaml, *.yml of these folders; folders that are missing are passed over. Where two files describe a
  // device of one name, the later folder's counts. A file that cannot be read is a problem and the others count.
  static CdiRegistry read(const std::vector<std::filesystem::path>& dirs);
  static std::vector<std::filesystem::path> default_dirs();  // /etc/cdi, /var/run/cdi

  // Of a kind ("nvidia.com/gpu"), by name; those of the specification that stand for several ("all") included.
  std::vector<std::string> devices(std::string_view kind) const;
  // Of devices by their whole names: "nvidia.com/gpu=0". Throws NotFound naming those that there are.
  CdiEdits edits(const std::vector<std::string>& qualified_names) const;
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Device {
    std::size_t file = 0;
    CdiEdits edits;
  };
  void add_file(const std::filesystem::path& file);
  std::vector<CdiEdits> common_;                        // by file
  std::map<std::string, Device, std::less<>> devices_;  // by qualified name
  std::vector<std::string> problems_;
};

// One document. `yaml`: else JSON. Throws CorruptData naming `what` and the field, Unsupported beyond the limits.
struct CdiDocument {
  std::string kind;  // "nvidia.com/gpu"
  CdiEdits common;
  std::map<std::string, CdiEdits> devices;
};
CdiDocument parse_cdi(std::string_view text, bool yaml, std::string_view what);

}  // namespace varve::fuse
