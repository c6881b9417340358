#include "core/base/scratch_file.h"

#include <fcntl.h>

#include "core/base/file.h"

namespace varve {

void write_scratch_file(const std::filesystem::path& path, ByteView bytes, mode_t mode) {
  auto fresh = path;
  fresh += ".new";
  const auto file = open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
  write_all(file.get(), bytes, fresh.string());
  std::filesystem::rename(fresh, path);
}

}  // namespace varve
