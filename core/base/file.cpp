#include "core/base/file.h"

#include <sys/stat.h>

#include <atomic>

#include "core/base/errors.h"

namespace varve {
namespace {

// Calls `operation` until it is not interrupted by a signal.
template <typename Operation>
auto retry_interrupted(Operation operation) {
  auto result = operation();
  while (result < 0 && errno == EINTR) result = operation();
  return result;
}

void sync_folder_of(const std::filesystem::path& path) {
  const auto parent = path.parent_path();
  const auto folder = open_file(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY);
  ::fsync(folder.get());  // some file systems refuse it on folders; the rename is still atomic
}

}  // namespace

UniqueFd open_file(const std::filesystem::path& path, int flags, mode_t mode) {
  UniqueFd fd(retry_interrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); }));
  if (!fd) fail_errno("open {}", path.string());
  return fd;
}

std::uint64_t file_size(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_errno("stat {}", path.string());
  return std::uint64_t(status.st_size);
}

void pread_exactly(int fd, std::uint64_t offset, std::span<std::byte> into, std::string_view what) {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto got =
        retry_interrupted([&] { return ::pread(fd, into.data() + done, into.size() - done, off_t(offset + done)); });
    if (got < 0) fail_errno("read {} at {}", what, offset + done);
    if (got == 0)
      fail<CorruptData>("read {} at {}: it ends there, {} bytes too early", what, offset + done, into.size() - done);
    done += std::size_t(got);
  }
}

void pwrite_all(int fd, std::uint64_t offset, ByteView bytes, std::string_view what) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto put =
        retry_interrupted([&] { return ::pwrite(fd, bytes.data() + done, bytes.size() - done, off_t(offset + done)); });
    if (put < 0) fail_errno("write {} at {}", what, offset + done);
    done += std::size_t(put);
  }
}

void write_all(int fd, ByteView bytes, std::string_view what) {
  while (!bytes.empty()) {
    const auto put = retry_interrupted([&] { return ::write(fd, bytes.data(), bytes.size()); });
    if (put < 0) fail_errno("write {}", what);
    bytes = bytes.subspan(std::size_t(put));
  }
}

Bytes read_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  const auto fd = open_file(path, O_RDONLY);
  const auto too_large = [&] { fail<Unsupported>("{} is larger than {} bytes", path.string(), limit_bytes); };
  const auto size = file_size(fd.get(), path);
  if (size > limit_bytes) too_large();
  Bytes content;
  constexpr std::uint64_t kStep = 64 * 1024;
  // Read to the end rather than trust the size: /proc files and pipes have none. One byte more than may be there shows
  // what is too large.
  for (std::uint64_t used = 0;;) {
    const auto step = std::min(std::max(kStep, size > used ? size - used : 0), limit_bytes - used + 1);
    content.resize(used + step);
    const auto got = retry_interrupted([&] { return ::read(fd.get(), content.data() + used, step); });
    if (got < 0) fail_errno("read {}", path.string());
    used += std::uint64_t(got);
    if (used > limit_bytes) too_large();
    if (got == 0) {
      content.resize(used);
      return content;
    }
  }
}

std::optional<Bytes> read_file_if_there(const std::filesystem::path& path, std::uint64_t limit_bytes) {
  try {
    return read_file(path, limit_bytes);
  } catch (const std::system_error& error) {
    if (error.code().value() == ENOENT || error.code().value() == ENOTDIR) return std::nullopt;
    throw;
  }
}

AtomicFile::AtomicFile(std::filesystem::path final_path, mode_t mode) : final_path_(std::move(final_path)) {
  static std::atomic<unsigned> counter = 0;
  temporary_path_ = final_path_;
  temporary_path_ += fmt::format(".tmp-{}-{}", ::getpid(), counter++);
  fd_ = open_file(temporary_path_, O_RDWR | O_CREAT | O_EXCL, mode);
}

AtomicFile::~AtomicFile() {
  if (fd_) ::unlink(temporary_path_.c_str());
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) fail_errno("sync {}", temporary_path_.string());
  if (::rename(temporary_path_.c_str(), final_path_.c_str()) != 0)
    fail_errno("rename {} to {}", temporary_path_.string(), final_path_.string());
  fd_.reset();
  sync_folder_of(final_path_);
}

void write_file_atomically(const std::filesystem::path& path, ByteView bytes, mode_t mode) {
  AtomicFile file(path, mode);
  file.write(bytes);
  file.commit();
}

}  // namespace varve
