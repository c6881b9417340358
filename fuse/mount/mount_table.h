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

  // The same file system, wherever it is mounted.
  bool is_same(const MountEntry& other) const {
    return device == other.device && type == other.type && source == other.source;
  }
};

// Later mounts later. Lines of another form are skipped.
std::vector<MountEntry> parse_mount_table(std::string_view mountinfo);
std::vector<MountEntry> read_mount_table();

// What lies on top at a folder; null if nothing is mounted there.
const MountEntry* topmost_at(const std::vector<MountEntry>& table, const std::filesystem::path& dir);
// True if that file system is mounted there, on top or beneath others.
bool is_mounted_at(const std::vector<MountEntry>& table, const std::filesystem::path& dir, const MountEntry& what);

// An overlay: where it is mounted, and its lower layers as it names them, which may be links.
struct OverlayEntry {
  std::filesystem::path dir;
  std::vector<std::filesystem::path> lower;
};
std::vector<OverlayEntry> parse_overlays(std::string_view mountinfo);
// Folders of overlays above what is mounted at `dir`, in all mount namespaces that this process may look into: of
// containers, for one. The kernel does not call a mount busy for them, though they lose their files with it.
std::vector<std::filesystem::path> find_overlays_on(const std::filesystem::path& dir);

}  // namespace varve::fuse
