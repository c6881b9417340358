#include "core/base/files/remove_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve {
namespace {

UniqueFd open_folder_at(int parent, const std::string& name) {
  ::fchmodat(parent, name.c_str(), 0700, 0);  // overlayfs makes its work folder unreadable even for its owner
  UniqueFd folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) fail_errno("open {}", name);
  return folder;
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd/" + std::to_string(folder)))
    names.push_back(entry.path().filename().string());
  return names;
}

// Removes one entry of `top`. Folders inside it are moved up into `top` for a later turn, so that a tree of any depth,
// which a session may well leave, needs neither stack nor descriptors.
void remove_entry(int top, const std::string& name, dev_t device, std::uint64_t& moved) {
  struct stat status {};
  if (::fstatat(top, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fail_errno("stat {}", name);
  if (status.st_dev != device) fail<Error>("{} is another file system: unmount it first", name);
  bool is_folder = false;
  if (S_ISDIR(status.st_mode)) {
    const auto folder = open_folder_at(top, name);
    is_folder = true;
    for (const auto& inner : names_in(folder.get())) {
      if (::fstatat(folder.get(), inner.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fail_errno("stat {}", inner);
      if (!S_ISDIR(status.st_mode)) {
        if (::unlinkat(folder.get(), inner.c_str(), 0) != 0) fail_errno("remove {}", inner);
        continue;
      }
      ::fchmodat(folder.get(), inner.c_str(), 0700, 0);  // moving a folder rewrites its ".."
      if (::renameat(folder.get(), inner.c_str(), top, fmt::format(".removed-{}", ++moved).c_str()) != 0)
        fail_errno("move {}", inner);
    }
  }
  if (::unlinkat(top, name.c_str(), is_folder ? AT_REMOVEDIR : 0) != 0) fail_errno("remove {}", name);
}

}  // namespace

void remove_contents(const std::filesystem::path& dir, const std::string& kept) {
  const auto folder = open_file(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  struct stat status {};
  if (::fstat(folder.get(), &status) != 0) fail_errno("stat {}", dir.string());
  std::uint64_t moved = 0;
  const auto left = [&] {
    auto names = names_in(folder.get());
    std::erase(names, kept);
    return names;
  };
  for (auto names = left(); !names.empty(); names = left())
    for (const auto& name : names) remove_entry(folder.get(), name, status.st_dev, moved);
}

void remove_tree(const std::filesystem::path& dir) {
  remove_contents(dir, "");
  if (::rmdir(dir.c_str()) != 0) fail_errno("remove {}", dir.string());
}

}  // namespace varve
