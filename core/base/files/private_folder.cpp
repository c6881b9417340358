#include "core/base/files/private_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/errors.h"

namespace varve {

void make_private_folder(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir.parent_path());
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) fail_errno("make {}", dir.string());
  struct stat status {};
  if (::lstat(dir.c_str(), &status) != 0) fail_errno("look at {}", dir.string());
  const bool own_link = S_ISLNK(status.st_mode) && (status.st_uid == ::geteuid() || status.st_uid == 0);
  if (own_link && ::stat(dir.c_str(), &status) != 0) fail_errno("follow {}", dir.string());
  if (!S_ISDIR(status.st_mode)) fail<UsageError>("{}: not a folder; remove it", dir.string());
  if ((status.st_mode & 077) != 0 && ::chmod(dir.c_str(), 0700) != 0) fail_errno("close {} to others", dir.string());
}

}  // namespace varve
