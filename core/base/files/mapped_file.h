#pragma once
#include <filesystem>

#include "core/base/bytes.h"

namespace varve {

// A whole file mapped read-only. An empty file is an empty view.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws std::system_error naming the path.
  static MappedFile open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  ByteView bytes() const { return bytes_; }

 private:
  ByteView bytes_;
};

}  // namespace varve
