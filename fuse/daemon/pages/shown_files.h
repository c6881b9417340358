#pragma once
// Which files of an image show which bytes of its layers.
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/daemon/served_image.h"

namespace varve::fuse {

using OnFile = std::function<void(index::Nid file, const std::filesystem::path& folder, std::string_view name)>;
// Regular files of the tree, hard links once; `folder` is below its root.
void for_each_file(const index::ErofsReader& tree, const OnFile& on_file);

// Where a regular file's content lies, in order; `into` is the place in the file. What no piece covers are zeros.
std::vector<StreamPiece> content_of(const ServedImage& image, index::Nid file);

}  // namespace varve::fuse
