#pragma once
// What a mount shows now of some of its files, behind the kernel's back: its page cache of them is dropped first.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/threads/cancel.h"

namespace varve::fuse {

// Part of a file of a mounted tree.
struct FilePart {
  std::filesystem::path path;  // below the mount, through no symbolic link
  ByteRange range;             // in the file, and inside of it
};

// Pieces of the part with that number, in order; or why it cannot be read (an errno), which is its last call.
using OnReread = std::function<void(std::size_t part, std::uint64_t offset_in_part, int error, ByteView bytes)>;

// Pages that somebody has mapped stay as they are (posix_fadvise(2)). A child process reads (mount_child.h). Throws
// std::system_error, Cancelled, and TemporaryError if the child ends before its time.
void reread_mount(const std::filesystem::path& mount, const std::vector<FilePart>& parts, const CancelFlag& cancel,
                  const OnReread& on_reread);

}  // namespace varve::fuse
