#pragma once
// Root's sessions in user namespaces of their own (`--userns auto`): their root is nobody on the machine. What they see
// of it is shown with their ids by mounts that map owners (mount_setattr(2), "ID-mapped mounts"); nothing on disk
// changes. docs/guide/sessions.md.
#include <filesystem>

#include "core/base/files/unique_fd.h"
#include "fuse/session/bundle.h"

namespace varve::fuse {

// From now on, in this mount namespace alone, the files of the mount at `path` belong to the ids that they have in
// `user_namespace`. Throws Unsupported with what would have to be otherwise if the file system or the kernel cannot do
// that.
void show_with_ids(const std::filesystem::path& path, const UniqueFd& user_namespace);

// What this thread makes meanwhile belongs to the root of `ids`; its own rights stay.
class MakeFilesOf {
 public:
  explicit MakeFilesOf(const UserIds& ids);
  ~MakeFilesOf();
  MakeFilesOf(const MakeFilesOf&) = delete;
  MakeFilesOf& operator=(const MakeFilesOf&) = delete;

 private:
  int old_bits_ = 0;
};

// Mounts the session's root and what is bound into it beneath `place`, in this mount namespace alone, and lets `spec`
// name them there: the folders that they come from may be closed to all but the machine's root. Owners are those of
// `user_namespace`, but of devices and of the root itself, which has them already. Throws Unsupported as
// show_with_ids() does, and if `place` lies in a folder that others may not enter.
void stage_for_ids(SessionSpec& spec, const std::filesystem::path& place, const UniqueFd& user_namespace);

}  // namespace varve::fuse
