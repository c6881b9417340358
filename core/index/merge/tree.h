#pragma once
// The tree of an image in memory: all names and attributes after the layers are merged. Written as EROFS by
// erofs_writer.h.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/index/format/layer_entries.h"

namespace varve::index {

inline constexpr int kMaxSymlinksFollowed = 40;  // as Linux does

// No entry: the root, and parents that no layer gives.
inline constexpr std::uint32_t kNoEntry = 0xFFFFFFFF;

// Where a run of a file's content lies: layer 0 is the base layer's stream.
struct TreeRun {
  std::uint32_t layer = 0;
  ContentRun run;
};

// One inode. Hard links are several names of one TreeInode.
struct TreeInode : FileAttributes {  // type never kHardLink
  TreeInode() {
    type = FileType::kDirectory;
    mode = 0755;
  }

  std::uint64_t size = 0;
  std::uint32_t layer = 0;         // of the entry that made it; a directory is what the last entry said of it
  std::uint32_t entry = kNoEntry;  // its place in that layer's entries; not written into trees
  std::string symlink_target;
  std::vector<TreeRun> runs;
  // Directories: name -> inode, ordered bytewise as EROFS wants it.
  std::map<std::string, std::shared_ptr<TreeInode>, std::less<>> children;
};

struct Tree {
  std::shared_ptr<TreeInode> root = std::make_shared<TreeInode>();
  std::uint32_t layers = 0;
};

}  // namespace varve::index
