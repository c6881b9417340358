#pragma once
// Mounts that are copied to another place, as they are or with other owners (mount_setattr(2), "ID-mapped mounts").
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// A copy of the mount at `path` (of the folder `at`, or that itself if there is none), held by a descriptor until it is
// attached. Recursive: with all that is mounted below it.
UniqueFd copy_mount(int at, const std::string& path, bool recursive);
// Mounts the copy on the very place that is open; `name` is for errors.
void attach_mount(const UniqueFd& mount, int place, const std::string& name);
// The files of a copy of the mount at `path`, which is not attached yet, belong to the ids that they have in
// `user_namespace`. Absent if that could be done; else why not, and what would have to be otherwise.
std::optional<std::string> map_owners(const UniqueFd& mount, bool recursive, const std::filesystem::path& path,
                                      const UniqueFd& user_namespace);

}  // namespace varve::fuse
