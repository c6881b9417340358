#include "core/oci/descriptor.h"

namespace varve::oci {

std::optional<LayerMediaType> parse_layer_media_type(std::string_view media_type) {
  constexpr std::string_view kOci = "application/vnd.oci.image.layer.";
  constexpr std::string_view kDocker = "application/vnd.docker.image.rootfs.";
  LayerMediaType result;
  std::string_view rest = media_type;
  if (rest.starts_with(kOci)) {
    rest.remove_prefix(kOci.size());
    if (rest.starts_with("nondistributable.")) {
      result.nondistributable = true;
      rest.remove_prefix(std::string_view("nondistributable.").size());
    }
    if (!rest.starts_with("v1.tar")) return std::nullopt;
    rest.remove_prefix(std::string_view("v1.tar").size());
    if (!rest.empty() && rest[0] != '+') return std::nullopt;
  } else if (rest.starts_with(kDocker)) {
    rest.remove_prefix(kDocker.size());
    if (rest.starts_with("foreign.")) {
      result.nondistributable = true;
      rest.remove_prefix(std::string_view("foreign.").size());
    }
    if (!rest.starts_with("diff.tar")) return std::nullopt;
    rest.remove_prefix(std::string_view("diff.tar").size());
    if (!rest.empty() && rest[0] != '.') return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (!rest.empty()) rest.remove_prefix(1);
  if (rest.empty()) {
    result.compression = LayerCompression::kNone;
  } else if (rest == "gzip") {
    result.compression = LayerCompression::kGzip;
  } else if (rest == "zstd") {
    result.compression = LayerCompression::kZstd;
  } else {
    return std::nullopt;
  }
  return result;
}

bool is_index_media_type(std::string_view media_type) { return media_type == kOciIndexType || media_type == kDockerListType; }
bool is_manifest_media_type(std::string_view media_type) { return media_type == kOciManifestType || media_type == kDockerManifestType; }

}  // namespace varve::oci
