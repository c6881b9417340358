#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "fuse/mount/blob_fs.h"

namespace varve::fuse {

class FuseChannel;
struct FuseKeeping;

// Serves the files of `fs` at `dir`, each with direct I/O: the pages above them are the kernel's copy, a second one
// would only cost memory.
std::shared_ptr<FuseChannel> mount_blobs(std::shared_ptr<BlobFs> fs, const std::filesystem::path& dir,
                                         const std::string& source, unsigned threads, const FuseKeeping& keeping);

}  // namespace varve::fuse
