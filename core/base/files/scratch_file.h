#pragma once
// Files and folders that are worth nothing once the machine, or this process, has stopped.
#include <sys/types.h>

#include <filesystem>
#include <string_view>

#include "core/base/bytes.h"

namespace varve {

// As write_file_atomically() to whoever reads the file meanwhile, but does not wait for the disk: after a power loss
// there may be none, or an empty one. One writer of a path at a time.
void write_scratch_file(const std::filesystem::path& path, ByteView bytes, mode_t mode);

// A folder for this object alone, that only its owner may enter; gone with it, whatever it holds by then.
class ScratchFolder {
 public:
  // In `parent`, which is made if it is not there, under a name that begins with `prefix`. Throws std::system_error.
  ScratchFolder(const std::filesystem::path& parent, std::string_view prefix);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace varve
