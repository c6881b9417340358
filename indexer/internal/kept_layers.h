#pragma once
// What layers that are kept as they are give together, beside the tree that the image shall have.
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/index/merge/flat_tree.h"
#include "core/index/merge/placement.h"

namespace varve::indexer {

class KeptLayers {
 public:
  // `given`: the tree of those layers alone. The other tree must outlive it.
  KeptLayers(index::FlatTree given, const index::FlatTree& tree, const index::Placement& placement);

  // Whether a file or link of the tree is given as it shall be: the same for all names of its inode.
  bool stays(std::string_view path) const { return stays_.contains(path); }
  // The same for a directory, attributes and all.
  bool gives_directory(std::string_view path, const index::FlatEntry& wanted) const;
  // What has to be hidden: `survives` says what the new tree has, directories included. Of what is below a hidden
  // directory only the directory is named.
  std::vector<std::string> hidden(const std::unordered_set<std::string_view>& survives) const;

 private:
  index::FlatTree given_;
  const index::FlatTree& tree_;
  std::unordered_set<std::string_view> stays_;  // of the tree's keys
};

}  // namespace varve::indexer
