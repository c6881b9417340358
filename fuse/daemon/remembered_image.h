#pragma once
#include "core/oci/image.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/served_image.h"

namespace varve::fuse {

// What open_remembered() needs.
HandoverImage to_handover(const ServedImage& image);

// The image as it was when it was mounted: its reference is not resolved again, as the tag may have moved and the
// registry may be away. Its layers are read from where the reference points; if that cannot be opened at all, what is
// in the store can still be read. Throws CorruptData.
oci::Image open_remembered(const HandoverImage& image);

}  // namespace varve::fuse
