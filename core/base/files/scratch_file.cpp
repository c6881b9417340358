#include "core/base/files/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>

#include <string>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve {

void write_scratch_file(const std::filesystem::path& path, ByteView bytes, mode_t mode) {
  auto fresh = path;
  fresh += ".new";
  const auto file = open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
  write_all(file.get(), bytes, fresh.string());
  std::filesystem::rename(fresh, path);
}

ScratchFolder::ScratchFolder(const std::filesystem::path& parent, std::string_view prefix) {
  std::filesystem::create_directories(parent);
  auto name = (parent / prefix).string() + "-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) fail_errno("make a folder in {}", parent.string());
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace varve
