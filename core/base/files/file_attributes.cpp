#include "core/base/files/file_attributes.h"

namespace varve {

mode_t type_bits(FileType type) {
  switch (type) {
    case FileType::kRegular:
    case FileType::kHardLink:
      return S_IFREG;
    case FileType::kDirectory:
      return S_IFDIR;
    case FileType::kCharDevice:
      return S_IFCHR;
    case FileType::kBlockDevice:
      return S_IFBLK;
    case FileType::kFifo:
      return S_IFIFO;
    case FileType::kSymlink:
      return S_IFLNK;
  }
  return S_IFREG;
}

std::optional<FileType> type_of_mode(mode_t mode) {
  for (const auto type : {FileType::kRegular, FileType::kDirectory, FileType::kCharDevice, FileType::kBlockDevice,
                          FileType::kFifo, FileType::kSymlink})
    if ((mode & S_IFMT) == type_bits(type)) return type;
  return std::nullopt;
}

}  // namespace varve
