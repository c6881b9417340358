#include "core/oci/manifest.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/oci/internal/json.h"

namespace varve::oci {
namespace {

using internal::array_field;
using internal::field;
using internal::parse_descriptor;
using internal::parse_object;
using internal::string_field;
using internal::string_list_field;
using internal::string_map_field;

void require_schema_2(const nlohmann::json& document, std::string_view what) {
  const auto* version = field(document, "schemaVersion");
  if (version == nullptr || !version->is_number_integer()) fail<CorruptData>("{}: it has no schemaVersion", what);
  if (version->get<int>() == 1) fail<Unsupported>("{}: a Docker schema 1 manifest; push the image again with a current tool", what);
  if (version->get<int>() != 2) fail<Unsupported>("{}: schemaVersion {}", what, version->get<int>());
}

void require_size(ByteView json, std::uint64_t limit, std::string_view what) {
  if (json.size() > limit) fail<Unsupported>("{}: {} bytes, more than the limit of {}", what, json.size(), limit);
}

}  // namespace

Manifest Manifest::parse(ByteView json, std::string_view media_type, std::string_view what) {
  require_size(json, kMaxManifestBytes, what);
  const auto document = parse_object(json, what);
  require_schema_2(document, what);
  Manifest manifest;
  manifest.media_type = string_field(document, "mediaType", what);
  if (manifest.media_type.empty()) manifest.media_type = media_type;
  if (field(document, "manifests") != nullptr && field(document, "layers") == nullptr) fail<CorruptData>("{}: an index, not a manifest", what);
  manifest.artifact_type = string_field(document, "artifactType", what);
  const auto* config = field(document, "config");
  if (config == nullptr) fail<CorruptData>("{}: it names no config", what);
  manifest.config = parse_descriptor(*config, what);
  const auto& layers = array_field(document, "layers", what);
  if (layers.size() > kMaxLayers) fail<Unsupported>("{}: {} layers, more than the limit of {}", what, layers.size(), kMaxLayers);
  for (const auto& layer : layers) manifest.layers.push_back(parse_descriptor(layer, what));
  if (const auto* subject = field(document, "subject")) manifest.subject = parse_descriptor(*subject, what);
  manifest.annotations = string_map_field(document, "annotations", what);
  return manifest;
}

ImageIndex ImageIndex::parse(ByteView json, std::string_view what) {
  require_size(json, kMaxManifestBytes, what);
  const auto document = parse_object(json, what);
  require_schema_2(document, what);
  ImageIndex index;
  const auto& manifests = array_field(document, "manifests", what);
  if (manifests.size() > kMaxIndexEntries) fail<Unsupported>("{}: {} entries, more than the limit of {}", what, manifests.size(), kMaxIndexEntries);
  for (const auto& manifest : manifests) index.manifests.push_back(parse_descriptor(manifest, what));
  index.annotations = string_map_field(document, "annotations", what);
  return index;
}

ImageConfig ImageConfig::parse(ByteView json, std::string_view what) {
  require_size(json, kMaxConfigBytes, what);
  const auto document = parse_object(json, what);
  ImageConfig config;
  config.platform = Platform{string_field(document, "os", what), string_field(document, "architecture", what), string_field(document, "variant", what)};
  if (const auto* rootfs = field(document, "rootfs")) {
    if (!rootfs->is_object()) fail<CorruptData>("{}: 'rootfs' is not an object", what);
    for (const auto& diff_id : string_list_field(*rootfs, "diff_ids", what)) config.diff_ids.push_back(Digest::parse(diff_id, what));
  }
  const auto* runtime = field(document, "config");
  if (runtime == nullptr) return config;
  if (!runtime->is_object()) fail<CorruptData>("{}: 'config' is not an object", what);
  config.env = string_list_field(*runtime, "Env", what);
  config.entrypoint = string_list_field(*runtime, "Entrypoint", what);
  config.cmd = string_list_field(*runtime, "Cmd", what);
  config.user = string_field(*runtime, "User", what);
  config.working_dir = string_field(*runtime, "WorkingDir", what);
  config.stop_signal = string_field(*runtime, "StopSignal", what);
  config.labels = string_map_field(*runtime, "Labels", what);
  if (const auto* volumes = field(*runtime, "Volumes")) {
    if (!volumes->is_object()) fail<CorruptData>("{}: 'Volumes' is not an object", what);
    for (const auto& [path, ignored] : volumes->items()) config.volumes.push_back(path);
  }
  return config;
}

Bytes ArtifactManifest::to_json() const {
  nlohmann::json document{{"schemaVersion", 2}, {"mediaType", kOciManifestType}, {"artifactType", artifact_type}};
  document["config"] = internal::to_json(empty_json_descriptor());
  document["layers"] = nlohmann::json::array();
  for (const auto& layer : layers) document["layers"].push_back(internal::to_json(layer));
  if (layers.empty()) document["layers"].push_back(internal::to_json(empty_json_descriptor()));  // the list must not be empty
  if (subject) document["subject"] = internal::to_json(*subject);
  if (!annotations.empty()) document["annotations"] = annotations;
  return to_bytes(as_bytes(document.dump()));  // keys are kept sorted
}

ByteView empty_json() { return as_bytes("{}"); }

Descriptor empty_json_descriptor() {
  Descriptor descriptor;
  descriptor.media_type = kEmptyJsonType;
  descriptor.digest = digest_of(empty_json());
  descriptor.size = empty_json().size();
  return descriptor;
}

}  // namespace varve::oci
