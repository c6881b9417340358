#include "indexer/layout_record.h"

#include <algorithm>
#include <array>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/json_document.h"
#include "core/oci/artifact.h"

namespace varve::indexer {
namespace {

using nlohmann::json;

constexpr std::uint64_t kFormat = 1;
constexpr int kMaxDepth = 6;                 // of the document: layers, a layer, its components, one of them
constexpr std::size_t kMaxTextBytes = 1000;  // versions and writers
constexpr std::string_view kNoTag;
constexpr std::array kTiers = {index::Tier::kSystem, index::Tier::kCuda, index::Tier::kHot, index::Tier::kWatch,
                               index::Tier::kCold};

index::Tier tier_of(const JsonValue& value) {
  const auto found = std::ranges::find(kTiers, value.text(), index::tier_name);
  if (found == kTiers.end()) value.refuse(fmt::format("cannot be {:.40}", value.text()));
  return *found;
}

RecordedComponent component_of(const JsonValue& object) {
  RecordedComponent component{.version = object["version"].text(kMaxTextBytes),
                              .tier = tier_of(object["heat"]),
                              .content = object["content"].digest(),
                              .timeless = std::nullopt,
                              .bytes = object["bytes"].number(),
                              .releases = object["releases"].number<std::uint32_t>(),
                              .changes = object["changes"].number<std::uint32_t>()};
  if (const auto timeless = object.maybe("timeless")) component.timeless = timeless.digest();
  if (component.changes >= component.releases)
    object.refuse(fmt::format("changed {} times in {} releases", component.changes, component.releases));
  return component;
}

RecordedLayer layer_of(const JsonValue& object) {
  RecordedLayer layer{.digest = object["digest"].digest(),
                      .diff_id = object["diff_id"].digest(),
                      .compressed_bytes = object["compressed_bytes"].number(),
                      .stream_bytes = object["stream_bytes"].number(),
                      .kept_as_is = object["taken_over"].flag(),
                      .times_of_previous = object.has("times_of_previous") && object["times_of_previous"].flag(),
                      .tier = tier_of(object["heat"]),
                      .writer = object["writer"].text(kMaxTextBytes),
                      .components = {}};
  for (const auto& [name, component] : object["components"].members()) {
    if (name.empty() || name.size() > kMaxComponentNameBytes)
      component.refuse(fmt::format("is a component whose name has {} bytes", name.size()));
    layer.components.emplace(name, component_of(component));
  }
  if (layer.kept_as_is && !layer.components.empty()) object.refuse("was taken over and yet has components");
  if (layer.kept_as_is && layer.times_of_previous) object.refuse("was taken over as it was, and yet with other times");
  return layer;
}

void check_components(const LayoutRecord& record, std::string_view what) {
  std::set<std::string_view> names;
  for (const auto& layer : record.layers) {
    for (const auto& [name, component] : layer.components) {
      if (!names.insert(name).second) fail<CorruptData>("{}: component {} is in two layers", what, name);
      if (names.size() > kMaxRecordedComponents)
        fail<Unsupported>("{}: more than {} components", what, kMaxRecordedComponents);
    }
  }
}

json json_of(const RecordedLayer& layer) {
  auto components = json::object();
  for (const auto& [name, component] : layer.components) {
    components[name] = {{"version", component.version},
                        {"heat", index::tier_name(component.tier)},
                        {"content", component.content.to_string()},
                        {"bytes", component.bytes},
                        {"releases", component.releases},
                        {"changes", component.changes}};
    if (component.timeless) components[name]["timeless"] = component.timeless->to_string();
  }
  json document{{"digest", layer.digest.to_string()},
                {"diff_id", layer.diff_id.to_string()},
                {"compressed_bytes", layer.compressed_bytes},
                {"stream_bytes", layer.stream_bytes},
                {"taken_over", layer.kept_as_is},
                {"heat", index::tier_name(layer.tier)},
                {"writer", layer.writer},
                {"components", std::move(components)}};
  if (layer.times_of_previous) document["times_of_previous"] = true;
  return document;
}

// The layers it speaks of are those of the image.
void check_fits(const LayoutRecord& record, const oci::Image& image, std::string_view what) {
  if (record.image != image.digest())
    fail<CorruptData>("{}: is about {}, not {}", what, record.image.to_string(), image.digest().to_string());
  const auto& layers = image.manifest.layers;
  if (record.layers.size() != layers.size())
    fail<CorruptData>("{}: has {} layers, the image {}", what, record.layers.size(), layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (record.layers[i].digest != layers[i].digest || record.layers[i].diff_id != image.config.diff_ids.at(i))
      fail<CorruptData>("{}: layer {} is not the image's", what, i);
  }
}

LayoutRecord read_record(const oci::Image& image, const oci::Descriptor& artifact) {
  const auto what = "layout record " + artifact.digest.to_string();
  auto record = parse_layout_record(oci::read_artifact(image, artifact, kLayoutRecordArtifactType,
                                                       kLayoutRecordMediaType, kMaxLayoutRecordBytes, what)
                                        .text,
                                    what);
  check_fits(record, image, what);
  return record;
}

// How much history it holds.
std::uint64_t releases_of(const LayoutRecord& record) {
  std::uint64_t releases = 0;
  for (const auto& layer : record.layers) {
    for (const auto& [name, component] : layer.components) releases += component.releases;
  }
  return releases;
}

}  // namespace

std::string to_json(const LayoutRecord& record) {
  auto layers = json::array();
  for (const auto& layer : record.layers) layers.push_back(json_of(layer));
  json document{{"format", kFormat}, {"image", record.image.to_string()}, {"layers", std::move(layers)}};
  if (record.latest_time) document["latest_time"] = *record.latest_time;
  if (record.latest_created) document["latest_created"] = *record.latest_created;
  try {
    return document.dump();
  } catch (const json::exception&) {
    fail<UsageError>("layout record of {}: the name or version of a component is no UTF-8", record.image.to_string());
  }
}

LayoutRecord parse_layout_record(std::string_view text, std::string_view what) {
  const auto document = JsonValue::parse(
      text, what, {.bytes = kMaxLayoutRecordBytes, .depth = kMaxDepth, .values = 10 * kMaxRecordedComponents});
  if (const auto format = document["format"].number(); format != kFormat)
    fail<Unsupported>("{}: format {} is of a later Varve", what, format);
  LayoutRecord record;
  record.image = document["image"].digest();
  for (const auto& layer : document["layers"].items(oci::kMaxLayers)) record.layers.push_back(layer_of(layer));
  if (const auto latest = document.maybe("latest_time"))
    record.latest_time = latest.number<std::int64_t>(0, kLastSecond);
  if (const auto latest = document.maybe("latest_created"))
    record.latest_created = latest.number<std::int64_t>(0, kLastSecond);
  check_components(record, what);
  return record;
}

std::optional<LayoutRecord> find_layout_record(const oci::Image& image) {
  std::optional<LayoutRecord> best;
  const auto damage =
      oci::visit_artifacts(image, kLayoutRecordArtifactType, "a layout record", [&](const oci::Descriptor& artifact) {
        auto record = read_record(image, artifact);
        if (!best || releases_of(record) > releases_of(*best)) best = std::move(record);
        return false;
      });
  if (!best && !damage.empty()) throw CorruptData(damage);
  return best;
}

void publish_layout_record(oci::Repository& repository, const oci::Descriptor& image, const LayoutRecord& record) {
  if (record.image != image.digest)
    fail<UsageError>("layout record of {} given for {}", record.image.to_string(), image.digest.to_string());
  const auto json = to_json(record);
  oci::put_bytes(repository, oci::empty_json(), oci::kEmptyJsonType);
  oci::ArtifactManifest manifest;
  manifest.artifact_type = kLayoutRecordArtifactType;
  manifest.subject = oci::bare(image);
  manifest.layers.push_back(oci::bare(oci::put_bytes(repository, as_bytes(json), kLayoutRecordMediaType)));
  repository.put_manifest(manifest.to_json(), oci::kOciManifestType, kNoTag);
}

}  // namespace varve::indexer
