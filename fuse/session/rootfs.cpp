#include "fuse/session/rootfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <memory>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/free_with.h"

namespace varve::fuse {
namespace {

constexpr int kMaxSymlinks = 40;  // as the kernel's own limit

// -1 and errno as open(2).
int open_in_root(int root, const std::string& path, int flags, std::uint64_t resolve = RESOLVE_IN_ROOT) {
  open_how how{};
  how.flags = std::uint64_t(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS | resolve;
  const auto text = path.empty() ? std::string(".") : path;
  for (int attempt = 0;; ++attempt) {
    const int fd = int(::syscall(SYS_openat2, root, text.c_str(), &how, sizeof how));
    // EAGAIN: a rename elsewhere raced with a ".."; the kernel asks to try again.
    if (fd >= 0 || (errno != EINTR && !(errno == EAGAIN && attempt < 100))) return fd;
  }
}

// The components in reverse, so that the next one is at the back.
std::vector<std::string> reversed_components(std::string_view path) {
  std::vector<std::string> parts;
  std::size_t end = path.size();
  while (end > 0) {
    const auto slash = path.rfind('/', end - 1);
    const auto begin = slash == path.npos ? 0 : slash + 1;
    if (begin < end) parts.emplace_back(path.substr(begin, end - begin));
    end = slash == path.npos ? 0 : slash;
  }
  return parts;
}

std::string read_link(int folder, const std::string& name) {
  std::array<char, PATH_MAX> target{};
  const auto length = ::readlinkat(folder, name.c_str(), target.data(), target.size());
  if (length < 0) fail_errno("read the symlink {}", name);
  return {target.data(), std::size_t(length)};
}

void make(int folder, const std::string& name, const Rootfs::NewFile& wanted) {
  if (wanted.folder) {
    if (::mkdirat(folder, name.c_str(), wanted.mode) != 0 && errno != EEXIST) fail_errno("make the folder {}", name);
  } else {
    const UniqueFd made(
        ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, wanted.mode));
    if (!made && errno != EEXIST) fail_errno("make the file {}", name);
  }
  // Owners that this user cannot give away stay his own.
  if ((wanted.uid != 0 || wanted.gid != 0) &&
      ::fchownat(folder, name.c_str(), wanted.uid, wanted.gid, AT_SYMLINK_NOFOLLOW) != 0 && errno != EPERM &&
      errno != EINVAL)
    fail_errno("give {} to {}:{}", name, wanted.uid, wanted.gid);
}

}  // namespace

Rootfs Rootfs::open(const std::string& folder) { return Rootfs(open_file(folder, O_PATH | O_DIRECTORY), folder); }

std::optional<UniqueFd> Rootfs::open_path(std::string_view path, int flags) const {
  UniqueFd fd(open_in_root(fd_.get(), std::string(path), flags));
  if (!fd && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return std::nullopt;
  if (!fd) fail_errno("open {} in {}", path, name_);
  return fd;
}

std::optional<UniqueFd> Rootfs::open_plain(std::string_view path, int flags) const {
  UniqueFd fd(open_in_root(fd_.get(), std::string(path), flags, RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) fail_errno("open {} in {}", path, name_);
  return fd;
}

std::optional<UniqueFd> Rootfs::open_beneath(std::string_view path) const {
  UniqueFd fd(open_in_root(fd_.get(), std::string(path), O_PATH, RESOLVE_BENEATH));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) fail_errno("open {} in {}", path, name_);
  return fd;
}

std::optional<UniqueFd> Rootfs::open_regular(std::string_view path) const {
  // Not opened for reading before its type is known: a fifo would wait, a device could act.
  const auto there = open_path(path, O_PATH);
  if (!there) return std::nullopt;
  struct stat status {};
  if (::fstat(there->get(), &status) != 0) fail_errno("stat {} in {}", path, name_);
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  return open_file("/proc/self/fd/" + std::to_string(there->get()), O_RDONLY);
}

std::optional<Bytes> Rootfs::read_file(std::string_view path, std::uint64_t limit_bytes) const {
  const auto file = open_regular(path);
  if (!file) return std::nullopt;
  const auto what = fmt::format("{} in {}", path, name_);
  const auto size = file_size(file->get(), what);
  if (size > limit_bytes)
    fail<Unsupported>("{} in the image has {} bytes; at most {} are read", path, size, limit_bytes);
  Bytes bytes(size);
  pread_exactly(file->get(), 0, bytes, what);
  return bytes;
}

std::optional<Rootfs::Folder> Rootfs::list(std::string_view path) const {
  auto fd = open_path(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
  struct stat status {};
  if (!fd || ::fstat(fd->get(), &status) != 0) return std::nullopt;
  const std::unique_ptr<DIR, FreeWith<::closedir>> listing(::fdopendir(fd->get()));
  if (!listing) return std::nullopt;
  fd->release();
  Folder folder{.inode = status.st_ino, .names = {}};
  while (const auto* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") folder.names.emplace_back(name);
  }
  return folder;
}

std::string Rootfs::ensure(std::string_view path, const NewFile& wanted) const {
  auto left = reversed_components(path);
  std::string done;  // resolved, no symlinks; "" is the root
  int symlinks = 0;
  while (!left.empty()) {
    const auto name = left.back();
    left.pop_back();
    if (name == ".") continue;
    if (name == "..") {
      done.erase(done.empty() ? 0 : done.rfind('/'));
      continue;
    }
    const UniqueFd folder(open_in_root(fd_.get(), done, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    if (!folder) fail_errno("open {} in {}", done, name_);
    struct stat status {};
    if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) fail_errno("stat {}/{} in {}", done, name, name_);
      make(folder.get(), name, left.empty() ? wanted : NewFile{});
    } else if (S_ISLNK(status.st_mode)) {
      if (++symlinks > kMaxSymlinks)
        fail<CorruptData>("{} in the image goes through more than {} symlinks", path, kMaxSymlinks);
      const auto target = read_link(folder.get(), name);
      if (target.starts_with('/')) done.clear();
      for (auto& part : reversed_components(target)) left.push_back(std::move(part));
      // reversed_components gives the last component first, and those are walked from the back.
      continue;
    }
    done += '/' + name;
  }
  return done.empty() ? "/" : done;
}

}  // namespace varve::fuse
