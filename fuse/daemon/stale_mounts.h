#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "fuse/control/control_messages.h"
#include "fuse/mount/mount_table.h"

namespace varve::fuse {

// What a daemon of this root writes into the first column of /proc/mounts for its FUSE mounts.
std::string mount_source(const DaemonPaths& paths);

// The folders in `table` where a daemon of this root has mounted something, topmost first: its internal mounts and all
// binds of them. File systems that are mounted at `served` are left out, wherever else they show.
std::vector<std::filesystem::path> find_stale_mounts(const std::vector<MountEntry>& table, const DaemonPaths& paths,
                                                     const std::set<std::filesystem::path>& served);

// What a daemon of this root has mounted at a folder, perhaps beneath something of others, with the folder's name as
// the kernel has it. Without a folder: nothing.
MountEntry find_own_mount(const std::vector<MountEntry>& table, const DaemonPaths& paths,
                          const std::filesystem::path& dir);

// Detaches what a daemon that was killed has left. Only for who holds the daemon's lock.
void unmount_stale(const DaemonPaths& paths, const std::set<std::filesystem::path>& served);

}  // namespace varve::fuse
