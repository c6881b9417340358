#include "core/oci/descriptor.h"

namespace varve::oci {

Descriptor descriptor_of(ByteView content, std::string_view media_type) {
  Descriptor descriptor;
  descriptor.media_type = media_type;
  descriptor.digest = digest_of(content);
  descriptor.size = content.size();
  return descriptor;
}

std::optional<LayerMediaType> parse_layer_media_type(std::string_view type) {
  LayerMediaType layer;
  const auto strip_prefix = [&](std::string_view prefix) {
    if (!type.starts_with(prefix)) return false;
    type.remove_prefix(prefix.size());
    return true;
  };
  if (strip_prefix("application/vnd.oci.image.layer.nondistributable.v1.tar") ||
      strip_prefix("application/vnd.docker.image.rootfs.foreign.diff.tar")) {
    layer.nondistributable = true;
  } else if (!strip_prefix("application/vnd.oci.image.layer.v1.tar") &&
             !strip_prefix("application/vnd.docker.image.rootfs.diff.tar")) {
    return std::nullopt;
  }
  // Docker writes ".gzip", OCI "+gzip"; ".zstd" and "+zstd" are seen under both prefixes.
  if (type.empty()) return layer;
  if (type == "+gzip" || type == ".gzip") {
    layer.compression = LayerCompression::kGzip;
  } else if (type == "+zstd" || type == ".zstd") {
    layer.compression = LayerCompression::kZstd;
  } else {
    return std::nullopt;
  }
  return layer;
}

bool is_index_media_type(std::string_view type) { return type == kOciIndexType || type == kDockerListType; }
bool is_manifest_media_type(std::string_view type) { return type == kOciManifestType || type == kDockerManifestType; }

}  // namespace varve::oci
