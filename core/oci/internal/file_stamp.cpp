#include "core/oci/internal/file_stamp.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <iterator>

namespace varve::oci::internal {
namespace {

constexpr std::chrono::nanoseconds kClockStep = std::chrono::milliseconds(50);  // more than a tick of any kernel

}  // namespace

bool FileStamp::is_settled() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(changed_ns) + kClockStep < now;
}

FileStamp stamp_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {.there = true,
          .inode = status.st_ino,
          .bytes = std::uint64_t(status.st_size),
          .changed_ns = std::int64_t(status.st_ctim.tv_sec) * 1'000'000'000 + status.st_ctim.tv_nsec};
}

std::vector<FileStamp> stamps_of(const std::vector<std::filesystem::path>& paths) {
  std::vector<FileStamp> stamps;
  std::ranges::transform(paths, std::back_inserter(stamps), stamp_of);
  return stamps;
}

}  // namespace varve::oci::internal
