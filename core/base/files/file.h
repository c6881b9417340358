#pragma once
// Whole reads and writes of local files. All throw std::system_error naming the path; EINTR is retried.
#include <fcntl.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/files/unique_fd.h"

namespace varve {

// O_CLOEXEC is added.
UniqueFd open_file(const std::filesystem::path& path, int flags, mode_t mode = 0644);
std::uint64_t file_size(int fd, const std::filesystem::path& path);

// Fills `into` from `offset`. Throws CorruptData if the file ends before.
void pread_exactly(int fd, std::uint64_t offset, std::span<std::byte> into, std::string_view what);
void pwrite_all(int fd, std::uint64_t offset, ByteView bytes, std::string_view what);
void write_all(int fd, ByteView bytes, std::string_view what);

class LateSync;

inline constexpr std::uint64_t kMostReadBytes = std::uint64_t(1) << 32;  // where no smaller limit is known

// Throws Unsupported if the file is larger than `limit_bytes`; takes no more memory than that to find out.
Bytes read_file(const std::filesystem::path& path, std::uint64_t limit_bytes = kMostReadBytes);
// Absent when there is no such file; a file of /proc, too, whose process ends while it is read.
std::optional<Bytes> read_file_if_there(const std::filesystem::path& path, std::uint64_t limit_bytes = kMostReadBytes);

// Brings the names in a folder to disk, where its file system can.
void sync_folder(const std::filesystem::path& folder);

// A file that appears under its final name whole and synced, or not at all. It has no name (O_TMPFILE) until it is
// complete, so nothing is left behind when the process is killed; where the file system cannot do that, it is written
// under a temporary name in the same folder, which is removed if commit() is not called. While it has that name it is
// locked (flock), so that what a killed process left is told from what another one writes.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path final_path, mode_t mode = 0644);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  int fd() const { return fd_.get(); }
  void write(ByteView bytes) { write_all(fd_.get(), bytes, final_path_.string()); }
  // What was there before is replaced.
  void commit();
  // The same, but the disk is not waited for: until it is synced, a power loss may leave it absent, empty or torn. For
  // what is checked whenever it is read, and can be had again.
  void commit(LateSync& later);
  // The same under another name in the same folder, which was not known before.
  void commit(std::filesystem::path final_path);

 private:
  void take_name();

  std::filesystem::path final_path_;
  std::filesystem::path temporary_path_;  // "" while the file has no name
  UniqueFd fd_;
};

// Removes temporary files of AtomicFile that belong to no running process: those of `final_path`, or all in a folder if
// it ends in "/". Returns how many bytes they had. What may not be looked at stays.
std::uint64_t remove_abandoned_files(const std::filesystem::path& final_path);

// What the files below a folder take on disk. What goes meanwhile, or may not be looked at, is left out.
std::uint64_t bytes_on_disk(const std::filesystem::path& dir);

void write_file_atomically(const std::filesystem::path& path, ByteView bytes, mode_t mode = 0644);

}  // namespace varve
