#include "core/oci/internal/layout_blob.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>

#include "core/base/errors.h"
#include "core/base/file.h"

namespace varve::oci::internal {
namespace {

std::filesystem::path temporary_name(const std::filesystem::path& final_path) {
  static std::atomic<unsigned> counter = 0;
  auto path = final_path;
  path += fmt::format(".tmp-{}-{}", ::getpid(), counter++);
  return path;
}

}  // namespace

LayoutBlobFile::LayoutBlobFile(std::filesystem::path final_path) : final_path_(std::move(final_path)) {
  fd_ = UniqueFd(::open(final_path_.parent_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644));
  if (fd_) return;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
    fail_errno("create a file in {}", final_path_.parent_path().string());
  temporary_path_ = temporary_name(final_path_);
  fd_ = open_file(temporary_path_, O_RDWR | O_CREAT | O_EXCL);
}

LayoutBlobFile::~LayoutBlobFile() {
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

void LayoutBlobFile::commit(std::filesystem::path final_path) {
  final_path_ = std::move(final_path);
  commit();
}

void LayoutBlobFile::commit() {
  if (::fsync(fd_.get()) != 0) fail_errno("sync {}", final_path_.string());
  if (temporary_path_.empty()) {
    const auto self = fmt::format("/proc/self/fd/{}", fd_.get());
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, final_path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      if (errno != EEXIST) fail_errno("name {}", final_path_.string());
      // Somebody else put a file there; ours is verified, theirs may be the broken one that we replace.
      const auto name = temporary_name(final_path_);
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
        fail_errno("name {}", name.string());
      temporary_path_ = name;
    }
  }
  if (!temporary_path_.empty()) {
    if (::rename(temporary_path_.c_str(), final_path_.c_str()) != 0)
      fail_errno("rename {} to {}", temporary_path_.string(), final_path_.string());
    temporary_path_.clear();
  }
  const auto folder = open_file(final_path_.parent_path(), O_RDONLY | O_DIRECTORY);
  ::fsync(folder.get());  // some file systems refuse it on folders; the name is there all the same
}

}  // namespace varve::oci::internal
