#include "core/base/files/mapped_file.h"

#include <sys/mman.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve {

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const auto fd = open_file(path, O_RDONLY);
  const auto size = file_size(fd.get(), path);
  MappedFile file;
  if (size == 0) return file;
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) fail_errno("map {}", path.string());
  file.bytes_ = {static_cast<const std::byte*>(at), size};
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace varve
