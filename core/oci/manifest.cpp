#include "core/oci/manifest.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/oci/internal/json.h"

namespace varve::oci {
namespace {

using nlohmann::json;
using namespace internal;

constexpr std::string_view kSchemaOneType = "application/vnd.docker.distribution.manifest.v1+";

void check_schema_version(const json& document, std::string_view what) {
  const auto version = document.find("schemaVersion");
  if (version == document.end() || !version->is_number_integer())
    fail<CorruptData>("{}: no schemaVersion; it is no manifest", what);
  if (*version == 1)
    fail<Unsupported>("{}: a Docker schema 1 manifest; push the image again with a current tool to convert it", what);
  if (*version != 2) fail<Unsupported>("{}: schemaVersion {} is not known", what, version->dump());
}

// A document that can be read as two kinds would have two meanings under one digest.
void refuse_ambiguity(const json& document, std::string_view media_type, std::string_view what) {
  const auto own_type = string_member(document, "mediaType", what);
  if (!own_type.empty() && !media_type.empty() && own_type != media_type)
    fail<CorruptData>("{}: it calls itself {}, but was given as {}", what, own_type, media_type);
  if (document.contains("manifests") && (document.contains("layers") || document.contains("config")))
    fail<CorruptData>("{}: manifest and index in one", what);
}

std::vector<Descriptor> descriptors_of(const json& document, const char* name, std::size_t limit,
                                       std::string_view what) {
  std::vector<Descriptor> descriptors;
  const auto* list = array_member(document, name, what);
  if (list == nullptr) return descriptors;
  if (list->size() > limit) fail<Unsupported>("{}: {} {}, the limit is {}", what, list->size(), name, limit);
  descriptors.reserve(list->size());
  for (const auto& item : *list) descriptors.push_back(descriptor_from_json(item, what));
  return descriptors;
}

}  // namespace

Manifest Manifest::parse(ByteView bytes, std::string_view media_type, std::string_view what) {
  if (media_type.starts_with(kSchemaOneType))
    fail<Unsupported>("{}: a Docker schema 1 manifest; push the image again with a current tool to convert it", what);
  const auto document = parse_json_object(bytes, kMaxManifestBytes, what);
  check_schema_version(document, what);
  refuse_ambiguity(document, media_type, what);

  Manifest manifest;
  manifest.media_type = media_type.empty() ? string_member(document, "mediaType", what) : std::string(media_type);
  if (manifest.media_type.empty()) manifest.media_type = kOciManifestType;  // OCI 1.0 leaves it out
  if (!is_manifest_media_type(manifest.media_type))
    fail<Unsupported>("{}: media type {} is no image manifest", what, manifest.media_type);
  const auto* config = object_member(document, "config", what);
  if (config == nullptr) fail<CorruptData>("{}: no config", what);
  manifest.config = descriptor_from_json(*config, what);
  manifest.layers = descriptors_of(document, "layers", kMaxLayers, what);
  manifest.artifact_type = string_member(document, "artifactType", what);
  manifest.annotations = string_map_member(document, "annotations", what);
  if (const auto* subject = object_member(document, "subject", what))
    manifest.subject = descriptor_from_json(*subject, what);
  return manifest;
}

ImageIndex ImageIndex::parse(ByteView bytes, std::string_view what) {
  const auto document = parse_json_object(bytes, kMaxManifestBytes, what);
  check_schema_version(document, what);
  refuse_ambiguity(document, "", what);
  const auto own_type = string_member(document, "mediaType", what);
  if (!own_type.empty() && !is_index_media_type(own_type))
    fail<Unsupported>("{}: media type {} is no image index", what, own_type);

  ImageIndex index;
  index.annotations = string_map_member(document, "annotations", what);
  const auto* list = array_member(document, "manifests", what);
  if (list == nullptr) return index;
  if (list->size() > kMaxIndexEntries)
    fail<Unsupported>("{}: {} manifests, the limit is {}", what, list->size(), kMaxIndexEntries);
  for (const auto& item : *list) {
    try {
      index.manifests.push_back(descriptor_from_json(item, what));
    } catch (const Unsupported&) {
      // A digest algorithm that is not ours: like an unknown media type, such an entry is never chosen.
    }
  }
  return index;
}

namespace {

// The history is a note to people: what is odd in it is passed over. If it speaks of another number of layers it tells
// nothing.
std::vector<std::string> creators_of(const json& document, std::size_t layers) {
  std::vector<std::string> creators;
  const auto history = document.find("history");
  if (history != document.end() && history->is_array()) {
    for (const auto& step : *history) {
      if (!step.is_object()) continue;
      const auto empty_layer = step.find("empty_layer");
      if (empty_layer != step.end() && empty_layer->is_boolean() && empty_layer->get<bool>()) continue;
      const auto created_by = step.find("created_by");
      creators.push_back(created_by != step.end() && created_by->is_string() ? created_by->get<std::string>()
                                                                             : std::string());
    }
  }
  if (creators.size() != layers) creators.assign(layers, "");
  return creators;
}

}  // namespace

ImageConfig ImageConfig::parse(ByteView bytes, std::string_view what) {
  const auto document = parse_json_object(bytes, kMaxConfigBytes, what);
  ImageConfig config;
  config.platform = {.os = string_member(document, "os", what),
                     .architecture = string_member(document, "architecture", what),
                     .variant = string_member(document, "variant", what)};
  const auto* rootfs = object_member(document, "rootfs", what);
  if (rootfs == nullptr) fail<CorruptData>("{}: no rootfs; it is no image config", what);
  for (const auto& diff_id : strings_member(*rootfs, "diff_ids", what)) {
    if (config.diff_ids.size() == kMaxLayers) fail<Unsupported>("{}: more than {} diff_ids", what, kMaxLayers);
    config.diff_ids.push_back(Digest::parse(diff_id, what));
  }
  config.created_by = creators_of(document, config.diff_ids.size());
  const auto* run = object_member(document, "config", what);
  if (run == nullptr) return config;
  config.env = strings_member(*run, "Env", what);
  config.entrypoint = strings_member(*run, "Entrypoint", what);
  config.cmd = strings_member(*run, "Cmd", what);
  config.user = string_member(*run, "User", what);
  config.working_dir = string_member(*run, "WorkingDir", what);
  config.stop_signal = string_member(*run, "StopSignal", what);
  config.labels = string_map_member(*run, "Labels", what);
  if (const auto* volumes = object_member(*run, "Volumes", what))
    for (const auto& [path, ignored] : volumes->items()) config.volumes.push_back(path);
  return config;
}

Bytes ArtifactManifest::to_json() const {
  json document = {
      {"schemaVersion", 2}, {"mediaType", kOciManifestType}, {"config", descriptor_to_json(empty_json_descriptor())}};
  document["artifactType"] = artifact_type;
  document["layers"] = json::array();
  for (const auto& layer : layers) document["layers"].push_back(descriptor_to_json(layer));
  if (subject) {
    // Referrers are found by the subject's identity alone; where it was listed says nothing about it.
    document["subject"] = descriptor_to_json({.media_type = subject->media_type,
                                              .digest = subject->digest,
                                              .size = subject->size,
                                              .artifact_type = {},
                                              .annotations = {},
                                              .urls = {},
                                              .platform = {}});
  }
  if (!annotations.empty()) document["annotations"] = annotations;
  return to_bytes(as_bytes(document.dump()));
}

ByteView empty_json() { return as_bytes("{}"); }

Descriptor empty_json_descriptor() {
  return {.media_type = std::string(kEmptyJsonType),
          .digest = digest_of(empty_json()),
          .size = empty_json().size(),
          .artifact_type = {},
          .annotations = {},
          .urls = {},
          .platform = {}};
}

}  // namespace varve::oci
