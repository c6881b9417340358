#pragma once
// From the entries of an image's layers to its one tree, as OCI image-spec layer.md ("Applying Changesets") says.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/index/format/layer_entries.h"
#include "core/index/merge/tree.h"

namespace varve::index {

inline constexpr std::size_t kMaxTreeDepth = 2048;  // deeper directories cannot be named by any path (PATH_MAX 4096)

// Puts layers on top of each other, base first. Only the tree and the layer being added are in memory.
//
// Rules where the specification leaves room:
// - Whiteouts of a layer act on what lower layers gave before any of its entries does, wherever they stand in the tar:
// they hide nothing of
//   their own layer.
// - A parent directory that no layer gives is 0755, root's, with time 0.
// - A symlink among an entry's parent directories is followed inside the image's root, never out of it.
// - Of several entries with one name in a layer the last one counts.
// - A hard link whose target stands later in the same layer gets it all the same; it may also name a file that this
// very layer removes.
// - Leftovers of aufs (".wh..wh.plnk" and the like) do not appear. The table of contents and landmarks of an eStargz
// layer do: they are files
//   of the layer like others, and every ordinary runtime shows them.
class LayerMerger {
 public:
  // Told of each name that a layer takes away, with all that is below it: by a whiteout, or because something else
  // takes its place (in the same layer too). The inode may live on under other names, or come back by a hard link: what
  // finish() does not hold is hidden for good.
  using OnRemoved = std::function<void(const TreeInode& inode, std::uint32_t by_layer, bool deleted)>;
  LayerMerger() = default;
  explicit LayerMerger(OnRemoved on_removed) : on_removed_(std::move(on_removed)) {}

  // Throws CorruptData naming the layer and the entry: a hard link without target or to a directory, a whiteout of
  // nothing, too many symlinks.
  void add(LayerEntries layer);
  // What all layers added so far make together. The merger is used up.
  Tree finish();

 private:
  OnRemoved on_removed_;
  Tree tree_;
};

}  // namespace varve::index
