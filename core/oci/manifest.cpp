#include "core/oci/manifest.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/oci/internal/descriptor_json.h"

namespace varve::oci {
namespace {

using nlohmann::json;
using namespace internal;

constexpr std::string_view kSchemaOneType = "application/vnd.docker.distribution.manifest.v1+";

void check_schema_version(const JsonValue& document, std::string_view what) {
  const auto version = document["schemaVersion"].number<int>();
  if (version == 1)
    fail<Unsupported>("{}: a Docker schema 1 manifest; push the image again with a current tool to convert it", what);
  if (version != 2) fail<Unsupported>("{}: schemaVersion {} is not known", what, version);
}

// A document that can be read as two kinds would have two meanings under one digest.
void refuse_ambiguity(const JsonValue& document, std::string_view media_type) {
  const auto own_type = document.maybe("mediaType").text();
  if (!own_type.empty() && !media_type.empty() && own_type != media_type)
    document.refuse(fmt::format("it calls itself {}, but was given as {}", own_type, media_type));
  if (document.has("manifests") && (document.has("layers") || document.has("config")))
    document.refuse("manifest and index in one");
}

}  // namespace

Manifest Manifest::parse(ByteView bytes, std::string_view media_type, std::string_view what) {
  if (media_type.starts_with(kSchemaOneType))
    fail<Unsupported>("{}: a Docker schema 1 manifest; push the image again with a current tool to convert it", what);
  const auto document = JsonValue::parse(bytes, what, {.bytes = kMaxManifestBytes});
  check_schema_version(document, what);
  refuse_ambiguity(document, media_type);

  Manifest manifest;
  manifest.media_type = media_type.empty() ? document.maybe("mediaType").text() : std::string(media_type);
  if (manifest.media_type.empty()) manifest.media_type = kOciManifestType;  // OCI 1.0 leaves it out
  if (!is_manifest_media_type(manifest.media_type))
    fail<Unsupported>("{}: media type {} is no image manifest", what, manifest.media_type);
  manifest.config = descriptor_from_json(document["config"]);
  for (const auto& layer : document.maybe("layers").items(kMaxLayers))
    manifest.layers.push_back(descriptor_from_json(layer));
  manifest.artifact_type = document.maybe("artifactType").text();
  manifest.annotations = document.maybe("annotations").texts_by_name();
  if (const auto subject = document.maybe("subject")) manifest.subject = descriptor_from_json(subject);
  return manifest;
}

ImageIndex ImageIndex::parse(ByteView bytes, std::string_view what) {
  const auto document = JsonValue::parse(bytes, what, {.bytes = kMaxManifestBytes});
  check_schema_version(document, what);
  refuse_ambiguity(document, "");
  const auto own_type = document.maybe("mediaType").text();
  if (!own_type.empty() && !is_index_media_type(own_type))
    fail<Unsupported>("{}: media type {} is no image index", what, own_type);

  ImageIndex index;
  index.annotations = document.maybe("annotations").texts_by_name();
  for (const auto& item : document.maybe("manifests").items(kMaxIndexEntries)) {
    try {
      index.manifests.push_back(descriptor_from_json(item));
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
  const auto document = JsonValue::parse(bytes, what, {.bytes = kMaxConfigBytes});
  ImageConfig config;
  config.platform = {.os = document.maybe("os").text(),
                     .architecture = document.maybe("architecture").text(),
                     .variant = document.maybe("variant").text()};
  for (const auto& diff_id : document["rootfs"].maybe("diff_ids").items(kMaxLayers))
    config.diff_ids.push_back(diff_id.digest());
  config.created_by = creators_of(document.raw(), config.diff_ids.size());
  const auto run = document.maybe("config");
  config.env = run.maybe("Env").texts();
  config.entrypoint = run.maybe("Entrypoint").texts();
  config.cmd = run.maybe("Cmd").texts();
  config.user = run.maybe("User").text();
  config.working_dir = run.maybe("WorkingDir").text();
  config.stop_signal = run.maybe("StopSignal").text();
  config.labels = run.maybe("Labels").texts_by_name();
  for (const auto& [path, ignored] : run.maybe("Volumes").members()) config.volumes.push_back(path);
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
