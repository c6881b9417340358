#pragma once
// Files that are worth nothing once the machine has stopped.
#include <sys/types.h>

#include <filesystem>

#include "core/base/bytes.h"

namespace varve {

// As write_file_atomically() to whoever reads the file meanwhile, but does not wait for the disk: after a power loss
// there may be none, or an empty one. One writer of a path at a time.
void write_scratch_file(const std::filesystem::path& path, ByteView bytes, mode_t mode);

}  // namespace varve
