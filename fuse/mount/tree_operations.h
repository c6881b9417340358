#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "fuse/mount/tree_fs.h"

namespace varve::fuse {

class FuseChannel;
struct FuseKeeping;

struct TreeMountOptions {
  std::filesystem::path dir;
  std::string source;
  std::string name;  // for messages: the image
  bool check_permissions = true;
  unsigned read_ahead_kb = 0;  // of the kernel, at most its default; 0: that
  unsigned threads = 4;
};

// Serves the tree so that the kernel may remember all it has once asked for: a warm walk or import sends no request.
std::shared_ptr<FuseChannel> mount_tree(std::shared_ptr<TreeFs> fs, const TreeMountOptions& options,
                                        const FuseKeeping& keeping);

// The tree's inode number as the kernel knows the node: the root must be 1, and 0 means "no such name", so that these
// change places with the root's number and one beyond all. Both ways are computed; there is no state.
std::uint64_t node_of(index::Nid nid, index::Nid root);
index::Nid nid_of(std::uint64_t node, index::Nid root);

}  // namespace varve::fuse
