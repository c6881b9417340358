#include "core/base/files/file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "core/base/errors.h"
#include "core/base/files/abandoned_files.h"
#include "core/base/files/late_sync.h"
#include "core/base/threads/guarded.h"

namespace varve {
namespace {

// Calls `operation` until it is not interrupted by a signal.
template <typename Operation>
auto retry_interrupted(Operation operation) {
  auto result = operation();
  while (result < 0 && errno == EINTR) result = operation();
  return result;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

constexpr std::string_view kTemporary = ".tmp-";  // NAME.tmp-PID-N

std::filesystem::path temporary_name(const std::filesystem::path& final_path) {
  static std::atomic<unsigned> counter = 0;
  auto path = final_path;
  path += fmt::format("{}{}-{}", kTemporary, ::getpid(), counter++);
  return path;
}

// The name the file was to have; "" for one that is none of ours.
std::string_view final_name_of(std::string_view name) {
  const auto at = name.rfind(kTemporary);
  if (at == name.npos) return {};
  const auto number = name.substr(at + kTemporary.size());
  const bool ours = !number.empty() && number.find_first_not_of("0123456789-") == number.npos;
  return ours ? name.substr(0, at) : std::string_view();
}

// False if somebody took it for abandoned before it was locked. Where nothing can be locked nobody takes it.
bool lock_temporary(int fd) {
  struct stat status {};
  return retry_interrupted([&] { return ::flock(fd, LOCK_EX); }) != 0 || ::fstat(fd, &status) != 0 ||
         status.st_nlink != 0;
}

// Messages name the file that was asked for: nobody knows the temporary name.
UniqueFd create_temporary(const std::filesystem::path& final_path, mode_t mode, std::filesystem::path& path) {
  for (;;) {
    path = temporary_name(final_path);
    UniqueFd fd(retry_interrupted([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode); }));
    if (!fd) fail_errno("write {}", final_path.string());
    if (lock_temporary(fd.get())) return fd;
  }
}

// Returns how many bytes it had; 0 if it is somebody's, or nothing that may be looked at.
std::uint64_t remove_if_abandoned(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  const bool removed = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::unlink(path.c_str()) == 0;
  return removed ? std::uint64_t(status.st_size) : 0;
}

using PathsByFinalName = std::multimap<std::string, std::filesystem::path, std::less<>>;

PathsByFinalName temporaries_in(const std::filesystem::path& folder) {
  PathsByFinalName found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().native();
    if (const auto final_name = final_name_of(name); !final_name.empty()) found.emplace(final_name, at->path());
  }
  return found;
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
    const auto code = error.code().value();
    if (code == ENOENT || code == ENOTDIR || code == ESRCH) return std::nullopt;
    throw;
  }
}

// Some file systems refuse it on folders; the name is there all the same.
void sync_folder(const std::filesystem::path& folder) { ::fsync(open_file(folder, O_RDONLY | O_DIRECTORY).get()); }

AtomicFile::AtomicFile(std::filesystem::path final_path, mode_t mode) : final_path_(std::move(final_path)) {
  const auto folder = folder_of(final_path_);
  // A file without a name gets one through /proc.
  if (::access("/proc/self/fd", F_OK) == 0) fd_.reset(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
  if (fd_) return;
  remove_abandoned_before_us(final_path_);
  fd_ = create_temporary(final_path_, mode, temporary_path_);
}

AtomicFile::~AtomicFile() {
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

void AtomicFile::commit(std::filesystem::path final_path) {
  final_path_ = std::move(final_path);
  commit();
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) fail_errno("write {}", final_path_.string());
  take_name();
  fd_.reset();
  sync_folder(folder_of(final_path_));
}

void AtomicFile::commit(LateSync& later) {
  take_name();
  later.add(std::move(fd_), final_path_);
}

void AtomicFile::take_name() {
  if (temporary_path_.empty()) {
    const auto self = fmt::format("/proc/self/fd/{}", fd_.get());
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, final_path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      if (errno != EEXIST) fail_errno("write {}", final_path_.string());
      // Only a rename replaces what is there.
      const auto name = temporary_name(final_path_);
      lock_temporary(fd_.get());
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
        fail_errno("write {}", final_path_.string());
      temporary_path_ = name;
    }
  }
  if (!temporary_path_.empty()) {
    if (::rename(temporary_path_.c_str(), final_path_.c_str()) != 0) fail_errno("write {}", final_path_.string());
    temporary_path_.clear();
  }
}

std::uint64_t remove_abandoned_files(const std::filesystem::path& final_path) {
  std::uint64_t bytes = 0;
  const auto only = final_path.filename().native();
  for (const auto& [final_name, path] : temporaries_in(folder_of(final_path)))
    if (only.empty() || only == final_name) bytes += remove_if_abandoned(path);
  return bytes;
}

void remove_abandoned_before_us(const std::filesystem::path& final_path) {
  static Guarded<std::map<std::filesystem::path, PathsByFinalName>> folders;  // what is left of each
  const auto folder = folder_of(final_path);
  if (!folders.with([&](auto& known) { return known.contains(folder); })) {
    auto found = temporaries_in(folder);
    folders.with([&](auto& known) { known.emplace(folder, std::move(found)); });
  }
  std::vector<std::filesystem::path> mine;
  folders.with([&](auto& known) {
    auto& left = known.at(folder);
    const auto [first, last] = left.equal_range(final_path.filename().native());
    for (auto at = first; at != last; ++at) mine.push_back(at->second);
    left.erase(first, last);
  });
  for (const auto& path : mine) remove_if_abandoned(path);
}

std::uint64_t bytes_on_disk(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(dir, fs::directory_options::skip_permission_denied, error), end;
       at != end && !error; at.increment(error)) {
    struct stat status {};
    if (::lstat(at->path().c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
      bytes += std::uint64_t(status.st_blocks) * 512;
  }
  return bytes;
}

void write_file_atomically(const std::filesystem::path& path, ByteView bytes, mode_t mode) {
  AtomicFile file(path, mode);
  file.write(bytes);
  file.commit();
}

}  // namespace varve
