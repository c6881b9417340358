#pragma once
// Puts the index of an image where it will be found. Which artifacts that makes: docs/format-index.md.
#include "core/base/cancel.h"
#include "core/index/image_index.h"
#include "core/oci/image.h"

namespace varve::index {

// Copies the index's blobs from `source` and puts the artifacts that name them: blobs before the manifests that name them, and what others look for
// last, so that a reader finds a whole index or none. Source and destination may be one.
void publish_index(const oci::Image& image, const ImageIndexBlobs& index, oci::Repository& source, oci::Repository& destination,
                   const CancelFlag& cancel);

}  // namespace varve::index
