#include "fuse/daemon/pages/shown_files.h"

#include <algorithm>
#include <unordered_set>

namespace varve::fuse {

void for_each_file(const index::ErofsReader& tree, const OnFile& on_file) {
  std::vector<std::pair<index::Nid, std::filesystem::path>> folders{{tree.root(), {}}};
  std::unordered_set<index::Nid> seen{tree.root()};
  while (!folders.empty()) {
    const auto [folder, path] = std::move(folders.back());
    folders.pop_back();
    tree.read_directory(folder, 0, [&, &path = path](std::string_view name, index::Nid nid, FileType type, auto) {
      if (name == "." || name == ".." || !seen.insert(nid).second) return true;
      if (type == FileType::kDirectory) folders.emplace_back(nid, path / name);
      if (type == FileType::kRegular) on_file(nid, path, name);
      return true;
    });
  }
}

std::vector<StreamPiece> content_of(const ServedImage& image, index::Nid file) {
  const auto& tree = *image.index().tree;
  const auto size = tree.inode(file).size;
  std::vector<StreamPiece> pieces;
  for (const auto& run : tree.runs(file)) {
    if (run.device == 0 || run.file_offset >= size) continue;
    const auto length = std::min(run.length, size - run.file_offset);
    image.devices().at(run.device - 1)->find_pieces({run.device_offset, length}, run.file_offset, pieces);
  }
  return pieces;
}

}  // namespace varve::fuse
