#include "fuse/daemon/pages/shown_files.h"

#include <algorithm>
#include <vector>

#include "core/base/text/image_path.h"

namespace varve::fuse {
namespace {

class SeenNids {
 public:
  explicit SeenNids(const index::ErofsReader& tree) : seen_(tree.nid_end()) {}
  // True the first time; always for a number that is none of the tree's, which who reads it finds.
  bool add(index::Nid nid) {
    if (nid >= seen_.size()) return true;
    const bool is_new = !seen_[nid];
    seen_[nid] = true;
    return is_new;
  }

 private:
  std::vector<bool> seen_;
};

}  // namespace

void for_each_name(const index::ErofsReader& tree, const OnName& on_name) {
  std::vector<std::pair<index::Nid, std::string>> folders{{tree.root(), {}}};
  SeenNids seen(tree);
  seen.add(tree.root());
  while (!folders.empty()) {
    const auto [folder, path] = std::move(folders.back());
    folders.pop_back();
    tree.read_directory(folder, 0, [&, &path = path](std::string_view name, index::Nid nid, FileType type, auto) {
      if (name == "." || name == "..") return true;
      if (type == FileType::kDirectory && seen.add(nid)) folders.emplace_back(nid, join_path(path, name));
      on_name(nid, type, path, name);
      return true;
    });
  }
}

void for_each_file(const index::ErofsReader& tree, const OnFile& on_file) {
  SeenNids seen(tree);
  for_each_name(tree, [&](index::Nid nid, FileType type, const std::string& folder, std::string_view name) {
    if (type == FileType::kRegular && seen.add(nid)) on_file(nid, folder, name);
  });
}

std::vector<StreamPiece> pieces_of(const std::vector<index::DeviceRun>& runs,
                                   const std::vector<std::shared_ptr<StreamFile>>& devices, ByteRange in_file) {
  std::vector<StreamPiece> pieces;
  for (const auto& run : runs) {
    if (run.device == 0) continue;
    const auto part = in_file.common_with({.offset = run.file_offset, .length = run.length});
    if (part.length > 0)
      devices.at(run.device - 1)
          ->find_pieces({run.device_offset + (part.offset - run.file_offset), part.length}, part.offset, pieces);
  }
  return pieces;
}

std::vector<StreamPiece> content_of(const ServedImage& image, index::Nid file) {
  const auto& tree = *image.index().tree;
  return pieces_of(tree.runs(file), image.devices(), {.offset = 0, .length = tree.inode(file).size});
}

}  // namespace varve::fuse
