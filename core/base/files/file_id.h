#pragma once
// Whether two names or descriptors mean one file.
#include <sys/stat.h>

#include <compare>
#include <filesystem>
#include <optional>

namespace varve {

// Of all files that are there now no other has it; a file that comes after this one is gone may.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileId&) const = default;
};

inline FileId id_of(const struct stat& status) { return {.device = status.st_dev, .inode = status.st_ino}; }

// Absent, with errno, if it cannot be looked at. A path is followed through links.
inline std::optional<FileId> find_file_id(int fd) noexcept {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return std::nullopt;
  return id_of(status);
}
inline std::optional<FileId> find_file_id(const std::filesystem::path& path) noexcept {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return id_of(status);
}

// Whether the name still means the file that is open: false as well if either is gone.
inline bool is_at(int fd, const std::filesystem::path& path) noexcept {
  const auto open = find_file_id(fd);
  return open && open == find_file_id(path);
}

}  // namespace varve
