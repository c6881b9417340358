#pragma once
// Artifacts of ours that speak of an image (image-spec, manifest.md "subject"): found beside it, checked before
// anything of them is believed.
#include <functional>
#include <string>
#include <string_view>

#include "core/oci/image.h"

namespace varve::oci {

// Media type, digest and size alone, as artifacts name blobs and subjects: what others may have added must not change
// our bytes.
Descriptor bare(const Descriptor& descriptor);

// A manifest that names `type` and has the image as its subject, and the text of its blob of `content_type`. Throws
// CorruptData naming `what`, Unsupported for a blob above `limit_bytes`, NotFound.
struct ArtifactText {
  Manifest manifest;
  std::string text;
};
ArtifactText read_artifact(const Image& image, const Descriptor& artifact, std::string_view type,
                           std::string_view content_type, std::size_t limit_bytes, const std::string& what);

// Visits the artifacts of that type beside the image, in the order of their digests, until `visit` returns true. One
// that throws CorruptData, Unsupported or NotFound is passed over with a warning that calls it `kind` ("a proof");
// returns what was wrong with the first such, "" = none was.
std::string visit_artifacts(const Image& image, std::string_view type, std::string_view kind,
                            const std::function<bool(const Descriptor& artifact)>& visit);

}  // namespace varve::oci
