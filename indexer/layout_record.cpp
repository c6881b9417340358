#include "indexer/layout_record.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/oci/artifact.h"

namespace varve::indexer {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr int kMaxDepth = 6;  // of the document: layers, a layer, its components, one of them
constexpr std::size_t kMaxValues = 10 * kMaxRecordedComponents;  // bounds the memory that a small document can ask for
constexpr std::size_t kMaxTextBytes = 1000;                      // versions and writers
constexpr std::string_view kNoTag;
constexpr std::array kHeats = {index::Heat::kSystem, index::Heat::kCuda, index::Heat::kHot, index::Heat::kWatch,
                               index::Heat::kCold};

json parse_json(std::string_view text, std::string_view what) {
  if (text.size() > kMaxLayoutRecordBytes)
    fail<Unsupported>("{}: {} bytes, the limit is {}", what, text.size(), kMaxLayoutRecordBytes);
  std::size_t values = 0;
  const auto check = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) fail<CorruptData>("{}: nested deeper than {}", what, kMaxDepth);
    if (++values > kMaxValues) fail<Unsupported>("{}: more than {} JSON values", what, kMaxValues);
    return true;
  };
  json document;
  try {
    document = json::parse(text, check);
  } catch (const json::parse_error& error) {
    fail<CorruptData>("{}: no valid JSON at byte {}", what, error.byte);
  } catch (const json::exception&) {
    fail<CorruptData>("{}: JSON with a number out of range", what);
  }
  if (!document.is_object()) fail<CorruptData>("{}: a JSON {} where an object is expected", what, document.type_name());
  return document;
}

// The members of one object; messages say which object it is.
class Members {
 public:
  Members(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail<CorruptData>("{}: a JSON {} where an object is expected", where_, object.type_name());
  }

  const json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) fail<CorruptData>("{}: \"{}\" is missing", where_, name);
    return *found;
  }
  std::string text(const char* name) const {
    const auto& member = at(name);
    if (!member.is_string()) wrong_type(name, member);
    auto value = member.get<std::string>();
    if (value.size() > kMaxTextBytes)
      fail<CorruptData>("{}: \"{}\" has {} bytes, the limit is {}", where_, name, value.size(), kMaxTextBytes);
    return value;
  }
  Digest digest(const char* name) const { return Digest::parse(text(name), where_ + ": \"" + name + "\""); }
  bool flag(const char* name) const {
    const auto& member = at(name);
    if (!member.is_boolean()) wrong_type(name, member);
    return member.get<bool>();
  }
  template <typename Number>
  Number number(const char* name) const {
    const auto& member = at(name);
    if (!member.is_number_unsigned()) wrong_type(name, member);
    const auto value = member.get<std::uint64_t>();
    if (value > std::numeric_limits<Number>::max())
      fail<CorruptData>("{}: \"{}\" is too large ({})", where_, name, value);
    return Number(value);
  }
  index::Heat heat(const char* name) const {
    const auto value = text(name);
    const auto found = std::ranges::find(kHeats, value, index::heat_name);
    if (found == kHeats.end()) fail<CorruptData>("{}: \"{}\" cannot be {:.40}", where_, name, value);
    return *found;
  }

 private:
  [[noreturn]] void wrong_type(const char* name, const json& member) const {
    fail<CorruptData>("{}: \"{}\" has the wrong type ({})", where_, name, member.type_name());
  }

  const json& object_;
  std::string where_;
};

RecordedComponent component_of(const json& object, const std::string& where) {
  const Members members(object, where);
  RecordedComponent component{.version = members.text("version"),
                              .heat = members.heat("heat"),
                              .content = members.digest("content"),
                              .bytes = members.number<std::uint64_t>("bytes"),
                              .releases = members.number<std::uint32_t>("releases"),
                              .changes = members.number<std::uint32_t>("changes")};
  if (component.changes >= component.releases)
    fail<CorruptData>("{}: changed {} times in {} releases", where, component.changes, component.releases);
  return component;
}

RecordedLayer layer_of(const json& object, const std::string& where) {
  const Members members(object, where);
  RecordedLayer layer{.digest = members.digest("digest"),
                      .diff_id = members.digest("diff_id"),
                      .compressed_bytes = members.number<std::uint64_t>("compressed_bytes"),
                      .stream_bytes = members.number<std::uint64_t>("stream_bytes"),
                      .taken_over = members.flag("taken_over"),
                      .heat = members.heat("heat"),
                      .writer = members.text("writer"),
                      .components = {}};
  const auto& components = members.at("components");
  if (!components.is_object())
    fail<CorruptData>("{}: \"components\" has the wrong type ({})", where, components.type_name());
  for (const auto& [name, component] : components.items()) {
    if (name.empty() || name.size() > kMaxComponentNameBytes)
      fail<CorruptData>("{}: a component's name has {} bytes", where, name.size());
    layer.components.emplace(name, component_of(component, where + ": component " + name));
  }
  if (layer.taken_over && !layer.components.empty())
    fail<CorruptData>("{}: was taken over and yet has components", where);
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
                        {"heat", index::heat_name(component.heat)},
                        {"content", component.content.to_string()},
                        {"bytes", component.bytes},
                        {"releases", component.releases},
                        {"changes", component.changes}};
  }
  return {{"digest", layer.digest.to_string()},
          {"diff_id", layer.diff_id.to_string()},
          {"compressed_bytes", layer.compressed_bytes},
          {"stream_bytes", layer.stream_bytes},
          {"taken_over", layer.taken_over},
          {"heat", index::heat_name(layer.heat)},
          {"writer", layer.writer},
          {"components", std::move(components)}};
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
  const json document{{"format", kFormat}, {"image", record.image.to_string()}, {"layers", std::move(layers)}};
  try {
    return document.dump();
  } catch (const json::exception&) {
    fail<UsageError>("layout record of {}: the name or version of a component is no UTF-8", record.image.to_string());
  }
}

LayoutRecord parse_layout_record(std::string_view text, std::string_view what) {
  const auto document = parse_json(text, what);
  const Members members(document, std::string(what));
  if (const auto format = members.number<std::uint32_t>("format"); format != kFormat)
    fail<Unsupported>("{}: format {} is of a later Varve", what, format);
  LayoutRecord record;
  record.image = members.digest("image");
  const auto& layers = members.at("layers");
  if (!layers.is_array()) fail<CorruptData>("{}: \"layers\" has the wrong type ({})", what, layers.type_name());
  if (layers.size() > oci::kMaxLayers)
    fail<Unsupported>("{}: {} layers, the limit is {}", what, layers.size(), oci::kMaxLayers);
  for (const auto& layer : layers)
    record.layers.push_back(layer_of(layer, fmt::format("{}: layer {}", what, record.layers.size())));
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
