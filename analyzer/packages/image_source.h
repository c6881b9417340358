#pragma once
// The files of an OCI image that has no index. One that has is an index::OpenedImage.
#include <cstdint>
#include <memory>

#include "core/base/work.h"
#include "core/index/file_source.h"
#include "core/oci/image.h"

namespace varve::packages {

inline constexpr std::uint64_t kMaxKeptBytes =
    256u << 20;  // contents kept from the pass over the layers; others are read in a second one

// Reads every layer once from its start, and layers again for contents that were not kept. Memory: the names, and
// kMaxKeptBytes. What `work` refers to must outlive it. Throws CorruptData naming the layer, Unsupported beyond the
// limits, Cancelled, and what the repository throws.
std::unique_ptr<index::FileSource> read_image(oci::Image image, const Work& work);

}  // namespace varve::packages
