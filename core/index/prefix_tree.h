#pragma once
// The tree of an image's lowest layers alone: what an image that is the lower part of another one shows. Merged from
// the layer entries that the index of the whole image names, when it is first asked for, and kept beside the whole
// trees (docs/formats/index.md "Where").
#include <cstddef>
#include <set>
#include <string>

#include "core/index/local_index.h"

namespace varve::index {

// As if the image had no other layers, but for its digest and its config, which are those of the whole one.
struct LayerPrefix {
  oci::Image image;
  LoadedIndex index;  // without profile and start-up packs, which are of the whole image; what it calls the digest of
                      // its tree names the decompressed tree and its ranges
};

// As good as the index is: by the same word, the same maps, the same check of what it points to. The entries of layers
// are fetched if they are not here. Memory: the tree, and the entries of one layer. Throws UsageError for a number of
// layers that is 0 or not smaller than the image's, CorruptData as LayerMerger does, and what fetching throws.
LayerPrefix load_prefix(LocalIndex& local, const oci::Image& image, const LoadedIndex& whole, std::size_t layers);

// How the files of an image's trees of lowest layers are called in ROOT/trees, by any number of layers, if they are
// there.
std::set<std::string> prefix_names(const oci::Image& image, const ImageIndexBlobs& index);

}  // namespace varve::index
