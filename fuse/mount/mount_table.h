#pragma once
// What is mounted, as /proc/self/mountinfo says (proc(5)). Reading it never touches a mount.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace varve::fuse {

struct MountEntry {
  std::string device;  // "major:minor"
  std::filesystem::path dir;
  std::string type;  // "erofs", "fuse.varve"
  std::string source;
};

// Later mounts later. Lines of another form are skipped.
std::vector<MountEntry> parse_mount_table(std::string_view mountinfo);
std::vector<MountEntry> read_mount_table();

}  // namespace varve::fuse
