#pragma once
// From the entries of an image's layers to its one tree, as OCI image-spec layer.md ("Applying Changesets") says.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/index/layer_entries.h"
#include "core/index/tree.h"

namespace varve::indexer {

inline constexpr int kMaxSymlinksFollowed = 40;        // as Linux does
inline constexpr std::size_t kMaxTreeDepth = 2048;     // deeper directories cannot be named by any path (PATH_MAX 4096)

// Puts layers on top of each other, base first. Only the tree and the layer being added are in memory.
//
// Rules where the specification leaves room:
// - Whiteouts of a layer act on what lower layers gave before any of its entries does, wherever they stand in the tar: they hide nothing of
//   their own layer.
// - A parent directory that no layer gives is 0755, root's, with time 0.
// - A symlink among an entry's parent directories is followed inside the image's root, never out of it.
// - Of several entries with one name in a layer the last one counts.
// - A hard link whose target stands later in the same layer gets it all the same; it may also name a file that this very layer removes.
// - Leftovers of aufs (".wh..wh.plnk" and the like) do not appear. The table of contents and landmarks of an eStargz layer do: they are files
//   of the layer like others, and every ordinary runtime shows them.
class LayerMerger {
 public:
  // Throws CorruptData naming the layer and the entry: a hard link without target or to a directory, a whiteout of nothing, too many symlinks.
  void add(index::LayerEntries layer);
  // What all layers added so far make together. The merger is used up.
  index::Tree finish();

 private:
  index::Tree tree_;
};

}  // namespace varve::indexer
