#pragma once
// Which files of an image show which bytes of its layers.
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/format/erofs.h"
#include "fuse/daemon/served_image.h"

namespace varve::fuse {

// Every name in the tree, folders before what is in them, those of one folder in a row; `folder` is below its root.
// What it throws ends the walk.
using OnName = std::function<void(index::Nid nid, FileType type, const std::string& folder, std::string_view name)>;
void for_each_name(const index::ErofsReader& tree, const OnName& on_name);

using OnFile = std::function<void(index::Nid file, const std::string& folder, std::string_view name)>;
// Regular files of the tree, hard links once.
void for_each_file(const index::ErofsReader& tree, const OnFile& on_file);

// Where a part of a file lies that has these runs, in order; `into` is the place in the file. What no piece covers are
// zeros.
std::vector<StreamPiece> pieces_of(const std::vector<index::DeviceRun>& runs,
                                   const std::vector<std::shared_ptr<StreamFile>>& devices, ByteRange in_file);
// The same of a whole regular file, of its layers alone.
std::vector<StreamPiece> content_of(const ServedImage& image, index::Nid file);

}  // namespace varve::fuse
