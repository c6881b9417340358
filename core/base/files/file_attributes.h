#pragma once
// What a file of an image is, whoever speaks of it: a tar, a layer's entries, the merged tree, the tree on disk.
#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace varve {

// The numbers are those of the on-disk formats (docs/formats/layer-entries.md, EROFS directories).
enum class FileType : std::uint8_t {
  kRegular = 1,
  kDirectory = 2,
  kCharDevice = 3,
  kBlockDevice = 4,
  kFifo = 5,
  kSymlink = 7,
  kHardLink = 15
};

// The part of st_mode that says the type; a hard link is to a file.
mode_t type_bits(FileType type);
// Absent for types that images do not have, sockets among them.
std::optional<FileType> type_of_mode(mode_t mode);

// The base of all structs that describe a file.
struct FileAttributes {
  FileType type = FileType::kRegular;
  std::uint32_t mode = 0;  // 07777
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_seconds = 0;       // may be negative
  std::uint32_t mtime_nanoseconds = 0;  // counts up from seconds
  std::uint32_t device_major = 0;       // of devices
  std::uint32_t device_minor = 0;
  std::map<std::string, std::string> xattrs;  // full name ("user.x", "security.capability") -> raw value

  bool operator==(const FileAttributes&) const = default;
  FileAttributes& attributes() { return *this; }
  const FileAttributes& attributes() const { return *this; }
};

// A run of a file's content: `length` bytes at `file_offset` lie at `stream_offset` of the layer stream. What no run
// covers reads as zeros.
struct ContentRun {
  std::uint64_t file_offset = 0;
  std::uint64_t stream_offset = 0;
  std::uint64_t length = 0;
  bool operator==(const ContentRun&) const = default;
};

}  // namespace varve
