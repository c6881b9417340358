#pragma once
// Content descriptors (OCI image-spec descriptor.md) and the media types we know (specs: manifest.md, layer.md).
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/oci/platform.h"

namespace varve::oci {

inline constexpr std::string_view kOciIndexType = "application/vnd.oci.image.index.v1+json";
inline constexpr std::string_view kOciManifestType = "application/vnd.oci.image.manifest.v1+json";
inline constexpr std::string_view kDockerListType = "application/vnd.docker.distribution.manifest.list.v2+json";
inline constexpr std::string_view kDockerManifestType = "application/vnd.docker.distribution.manifest.v2+json";
inline constexpr std::string_view kEmptyJsonType = "application/vnd.oci.empty.v1+json";

struct Descriptor {
  std::string media_type;
  Digest digest;
  std::uint64_t size = 0;  // bytes
  std::string artifact_type;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> urls;
  std::optional<Platform> platform;
};
Descriptor descriptor_of(ByteView content, std::string_view media_type);

// What the media type of a layer says about it; the bytes are sniffed as well, since labels lie.
enum class LayerCompression { kNone, kGzip, kZstd };
struct LayerMediaType {
  LayerCompression compression = LayerCompression::kNone;
  bool nondistributable = false;
};
// Absent if it is no layer media type that we know.
std::optional<LayerMediaType> parse_layer_media_type(std::string_view media_type);

bool is_index_media_type(std::string_view media_type);
bool is_manifest_media_type(std::string_view media_type);

}  // namespace varve::oci
