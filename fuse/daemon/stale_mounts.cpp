#include "fuse/daemon/stale_mounts.h"

#include <algorithm>
#include <map>

#include "core/base/log.h"
#include "fuse/mount/fuse_mount.h"

namespace varve::fuse {
namespace {

bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

std::string mount_source(const DaemonPaths& paths) { return "varve:" + paths.root.string(); }

std::vector<std::filesystem::path> find_stale_mounts(const std::vector<MountEntry>& table, const DaemonPaths& paths,
                                                     const std::set<std::filesystem::path>& served) {
  const auto source = mount_source(paths);
  std::set<std::string> devices;  // file systems that are ours: their binds share the device number
  for (const auto& entry : table) {
    const bool internal = is_inside(entry.dir, paths.images_dir()) || entry.dir == paths.blobs_dir();
    const bool ours = (entry.type.starts_with("fuse") && entry.source == source) ||
                      (entry.type == "erofs" && is_inside(entry.source, paths.root / "trees"));
    if (internal || ours) devices.insert(entry.device);
  }
  // What lies on top counts: a folder may have an older mount beneath.
  std::map<std::filesystem::path, std::string> topmost;
  for (const auto& entry : table) topmost[entry.dir] = entry.device;
  for (const auto& dir : served) devices.erase(topmost[dir]);
  std::vector<std::filesystem::path> stale;
  for (auto entry = table.rbegin(); entry != table.rend(); ++entry) {
    if (devices.contains(entry->device)) stale.push_back(entry->dir);
  }
  return stale;
}

MountEntry find_own_mount(const std::vector<MountEntry>& table, const DaemonPaths& paths,
                          const std::filesystem::path& dir) {
  std::error_code error;
  const auto parent = std::filesystem::canonical(dir.parent_path(), error);  // the run folder may lie behind a link
  const auto name = error ? dir : parent / dir.filename();
  const auto found = std::find_if(table.rbegin(), table.rend(), [&](const MountEntry& entry) {
    const bool of_fuse = entry.type.starts_with("fuse") && entry.source == mount_source(paths);
    return entry.dir == name && (of_fuse || entry.type == "erofs");
  });
  return found == table.rend() ? MountEntry{} : *found;
}

void unmount_stale(const DaemonPaths& paths, const std::set<std::filesystem::path>& served) {
  for (const auto& dir : find_stale_mounts(read_mount_table(), paths, served)) {
    try {
      unmount_dir(dir, true, !may_mount());
      log::warn("{}: left mounted by a daemon that died, now unmounted", dir.string());
    } catch (const std::exception& error) {
      log::warn("{}: left mounted by a daemon that died: {}", dir.string(), error.what());
    }
  }
}

}  // namespace varve::fuse
