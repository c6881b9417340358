#pragma once
// What is here by its digest, where load_index() looks for the best.
#include <set>

#include "core/index/local_index.h"

namespace varve::index {

// The index with that manifest, which an earlier call of load_index() has chosen and which goes on as it was: all that
// it loads is on this machine, so that neither the image's repository nor a newer index that has come since matters.
// Throws NotFound if it is here no longer.
LoadedIndex load_this_index(LocalIndex& local, const oci::Image& image, const Digest& index_manifest);

// Throws CorruptData unless the devices of its tree are the streams of this image's layers, and its ranges lie in them.
void check_devices(const LoadedIndex& index, const oci::Image& image);

// The start-up packs that the indexes of the image that are here name, believed or not. An index that is damaged names
// none, which is logged.
std::set<Digest> packs_named(LocalIndex& local, const Digest& image);

// The layer map that the LocalIndex of `root` keeps in that blob; null if it is not there, or damaged.
std::shared_ptr<const LayerMap> find_map(const std::filesystem::path& root, const Digest& blob);

}  // namespace varve::index
