#pragma once
// What this machine keeps of an image that is removed from it: its index and trees, which else only grow.
#include <cstdint>
#include <set>

#include "core/index/local_index.h"

namespace varve::index {

// Younger blobs stay until a later call: somebody may be about to name them.
inline constexpr std::int64_t kForgetGraceSeconds = 3600;

// Takes the image out of ROOT/index, and then what nothing needs there: indexes of images, and of layers of images,
// that are not there (any more), their signatures, blobs that only those name, and trees of such indexes. What was
// indexed here stays, as nobody else may have it; so do `staying` (manifests of indexes, and blobs), and what
// index-origin says. Returns the bytes that went. Throws CorruptData, and removes nothing, if a document cannot be
// read: what it names is not known then.
std::uint64_t forget_image(LocalIndex& local, const Digest& image, const std::set<Digest>& staying);

}  // namespace varve::index
