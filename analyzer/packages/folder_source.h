#pragma once
// A plain folder as files: a mounted image, an unpacked root, a virtual environment.
#include <filesystem>
#include <memory>

#include "core/index/file_source.h"

namespace varve::packages {

inline constexpr std::size_t kMaxFolderFiles = 20'000'000;
inline constexpr std::size_t kMaxFolderDepth = 2048;

// Walks the folder once; symbolic links are not followed and other file systems (/proc, volumes) not entered. What may
// not be listed is left out with a warning. `architecture` as OCI writes it. Throws std::system_error if the folder
// itself cannot be read, Unsupported beyond the limits.
std::unique_ptr<index::FileSource> open_folder(const std::filesystem::path& folder, std::string architecture);

}  // namespace varve::packages
