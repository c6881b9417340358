#include "core/oci/internal/descriptor_json.h"

#include <nlohmann/json.hpp>

#include "core/oci/manifest.h"

namespace varve::oci::internal {

using nlohmann::json;

Descriptor descriptor_from_json(const JsonValue& object) {
  Descriptor descriptor{.media_type = object.maybe("mediaType").text(),
                        .digest = object["digest"].digest(),
                        .size = object["size"].number(),
                        .artifact_type = object.maybe("artifactType").text(),
                        .annotations = object.maybe("annotations").texts_by_name(),
                        .urls = object.maybe("urls").texts(),
                        .platform = {}};
  if (const auto platform = object.maybe("platform"))
    descriptor.platform = {.os = platform.maybe("os").text(),
                           .architecture = platform.maybe("architecture").text(),
                           .variant = platform.maybe("variant").text()};
  return descriptor;
}

json descriptor_to_json(const Descriptor& descriptor) {
  json object = {
      {"mediaType", descriptor.media_type}, {"digest", descriptor.digest.to_string()}, {"size", descriptor.size}};
  if (!descriptor.artifact_type.empty()) object["artifactType"] = descriptor.artifact_type;
  if (!descriptor.annotations.empty()) object["annotations"] = descriptor.annotations;
  if (!descriptor.urls.empty()) object["urls"] = descriptor.urls;
  if (descriptor.platform) {
    json platform = {{"os", descriptor.platform->os}, {"architecture", descriptor.platform->architecture}};
    if (!descriptor.platform->variant.empty()) platform["variant"] = descriptor.platform->variant;
    object["platform"] = std::move(platform);
  }
  return object;
}

std::string document_media_type(ByteView json, std::string_view what) {
  const auto document = JsonValue::parse(json, what, {.bytes = kMaxManifestBytes});
  if (const auto own = document.maybe("mediaType").text(); !own.empty()) return own;
  return std::string(document.has("manifests") ? kOciIndexType : kOciManifestType);
}

}  // namespace varve::oci::internal
