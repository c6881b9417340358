#include "indexer/internal/rewritten_documents.h"

#include <nlohmann/json.hpp>

#include <utility>

#include "core/base/errors.h"
#include "core/base/text/calendar.h"

namespace varve::indexer {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kOciConfigType = "application/vnd.oci.image.config.v1+json";
constexpr std::string_view kGzipType = "application/vnd.oci.image.layer.v1.tar+gzip";
constexpr std::string_view kZstdType = "application/vnd.oci.image.layer.v1.tar+zstd";
constexpr const char* kCreatedAnnotation = "org.opencontainers.image.created";
constexpr std::string_view kPlainType = "application/vnd.oci.image.layer.v1.tar";
// By the option's older name: what was written before keeps its digest when it is written again.
constexpr std::string_view kCreatedBy = "varve image optimize --relayer";

// The entries of history that made a layer, base first; nothing if they do not tell of these layers.
std::vector<ordered_json> layer_history(const ordered_json& config, std::size_t layers) {
  std::vector<ordered_json> made;
  const auto history = config.find("history");
  if (history == config.end() || !history->is_array()) return {};
  for (const auto& entry : *history) {
    if (!entry.is_object()) return {};
    const auto empty = entry.find("empty_layer");
    if (empty == entry.end() || *empty != true) made.push_back(entry);
  }
  return made.size() == layers ? made : std::vector<ordered_json>();
}

template <typename Json>
void limit_time(Json& object, const char* member, std::optional<std::int64_t> latest) {
  if (!latest || !object.is_object()) return;
  const auto time = object.find(member);
  if (time == object.end() || !time->is_string()) return;
  if (const auto seconds = parse_rfc3339(time->template get<std::string>()); seconds && *seconds >= *latest)
    *time = rfc3339(*latest);
}

}  // namespace

std::string oci_layer_type(const oci::Descriptor& layer) {
  const auto type = oci::parse_layer_media_type(layer.media_type);
  if (!type)
    fail<Unsupported>("layer {}: media type {} is none of a layer", layer.digest.to_string(), layer.media_type);
  switch (type->compression) {
    case oci::LayerCompression::kGzip:
      return std::string(kGzipType);
    case oci::LayerCompression::kZstd:
      return std::string(kZstdType);
    case oci::LayerCompression::kNone:
      return std::string(kPlainType);
  }
  return {};
}

std::string rewritten_manifest(const oci::Image& image, const std::vector<oci::Descriptor>& layers,
                               const oci::Descriptor& config, std::optional<std::int64_t> latest_created) {
  auto document = json::parse(as_text(image.document.bytes));
  if (const auto notes = document.find("annotations"); notes != document.end())
    limit_time(*notes, kCreatedAnnotation, latest_created);
  document["mediaType"] = oci::kOciManifestType;
  document["schemaVersion"] = 2;
  document["config"]["mediaType"] = kOciConfigType;
  document["config"]["digest"] = config.digest.to_string();
  document["config"]["size"] = config.size;
  auto list = json::array();
  for (const auto& layer : layers) {
    json object{{"mediaType", layer.media_type}, {"digest", layer.digest.to_string()}, {"size", layer.size}};
    if (!layer.annotations.empty()) object["annotations"] = layer.annotations;
    list.push_back(std::move(object));
  }
  document["layers"] = std::move(list);
  return document.dump();
}

std::string rewritten_config(const oci::Image& image, const std::vector<LayerHistory>& layers,
                             const std::map<std::string, std::string>& labels,
                             std::optional<std::int64_t> latest_created) {
  auto config = ordered_json::parse(as_text(image.config_json));
  limit_time(config, "created", latest_created);
  const auto told = layer_history(config, image.manifest.layers.size());
  auto diff_ids = ordered_json::array();
  auto history = ordered_json::array();
  for (const auto& layer : layers) {
    diff_ids.push_back(layer.diff_id.to_string());
    if (layer.old_layer >= 0 && std::size_t(layer.old_layer) < told.size()) {
      history.push_back(told[std::size_t(layer.old_layer)]);
      limit_time(history.back(), "created", latest_created);
      continue;
    }
    ordered_json entry;
    if (const auto created = config.find("created"); created != config.end() && created->is_string())
      entry["created"] = *created;
    entry["created_by"] = kCreatedBy;
    entry["comment"] = layer.old_layer >= 0 ? fmt::format("layer {} as it was", layer.old_layer + 1) : layer.comment;
    history.push_back(std::move(entry));
  }
  config["rootfs"]["type"] = "layers";
  config["rootfs"]["diff_ids"] = std::move(diff_ids);
  config["history"] = std::move(history);
  if (!labels.empty()) {
    auto& inner = config["config"];
    if (!inner.is_object()) inner = ordered_json::object();
    auto& map = inner["Labels"];
    if (!map.is_object()) map = ordered_json::object();
    for (const auto& [name, value] : labels) map[name] = value;
  }
  return config.dump();
}

}  // namespace varve::indexer
