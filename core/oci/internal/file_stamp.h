#pragma once
// Whether a file that is read again and again is still the one that was read.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace varve::oci::internal {

// Differs once the path is another file, or has changed.
struct FileStamp {
  bool there = false;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  // since the epoch; by the kernel's clock, which may stand still for some ms (stat(2))
  bool operator==(const FileStamp&) const = default;
  // False if it changed so lately that the next change may carry the same time: only what was read while this was true
  // is known by its stamp.
  bool is_settled() const;
};

FileStamp stamp_of(const std::filesystem::path& path);
std::vector<FileStamp> stamps_of(const std::vector<std::filesystem::path>& paths);

}  // namespace varve::oci::internal
