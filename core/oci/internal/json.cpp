#include "core/oci/internal/json.h"

#include "core/base/errors.h"
#include "core/oci/manifest.h"

namespace varve::oci::internal {
namespace {

[[noreturn]] void wrong_type(std::string_view what, const char* name, const char* expected) {
  fail<CorruptData>("{}: '{}' is not {}", what, name, expected);
}

}  // namespace

nlohmann::json parse_object(ByteView bytes, std::string_view what) {
  const auto text = as_text(bytes);
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(text, [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      if (depth > kMaxJsonDepth) fail<CorruptData>("{}: JSON nested deeper than {}", what, kMaxJsonDepth);
      return true;
    });
  } catch (const nlohmann::json::parse_error& error) {
    fail<CorruptData>("{}: not valid JSON at byte {}", what, error.byte);
  }
  if (!document.is_object()) fail<CorruptData>("{}: not a JSON object", what);
  return document;
}

const nlohmann::json* field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string string_field(const nlohmann::json& object, const char* name, std::string_view what) {
  const auto* value = field(object, name);
  if (value == nullptr) return "";
  if (!value->is_string()) wrong_type(what, name, "a string");
  return value->get<std::string>();
}

std::map<std::string, std::string> string_map_field(const nlohmann::json& object, const char* name, std::string_view what) {
  std::map<std::string, std::string> result;
  const auto* value = field(object, name);
  if (value == nullptr) return result;
  if (!value->is_object()) wrong_type(what, name, "an object");
  for (const auto& [key, text] : value->items()) {
    if (!text.is_string()) wrong_type(what, name, "an object of strings");
    result.emplace(key, text.get<std::string>());
  }
  return result;
}

const nlohmann::json& array_field(const nlohmann::json& object, const char* name, std::string_view what) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const auto* value = field(object, name);
  if (value == nullptr) return kEmpty;
  if (!value->is_array()) wrong_type(what, name, "an array");
  return *value;
}

std::vector<std::string> string_list_field(const nlohmann::json& object, const char* name, std::string_view what) {
  std::vector<std::string> result;
  for (const auto& text : array_field(object, name, what)) {
    if (!text.is_string()) wrong_type(what, name, "an array of strings");
    result.push_back(text.get<std::string>());
  }
  return result;
}

Descriptor parse_descriptor(const nlohmann::json& json, std::string_view what) {
  if (!json.is_object()) fail<CorruptData>("{}: a descriptor is not an object", what);
  Descriptor descriptor;
  descriptor.media_type = string_field(json, "mediaType", what);
  descriptor.digest = Digest::parse(string_field(json, "digest", what), what);
  const auto* size = field(json, "size");
  if (size == nullptr || !size->is_number_unsigned()) fail<CorruptData>("{}: {} has no valid size", what, descriptor.digest.to_string());
  descriptor.size = size->get<std::uint64_t>();
  if (descriptor.size > std::uint64_t(INT64_MAX)) fail<CorruptData>("{}: {} has an impossible size", what, descriptor.digest.to_string());
  descriptor.artifact_type = string_field(json, "artifactType", what);
  descriptor.annotations = string_map_field(json, "annotations", what);
  descriptor.urls = string_list_field(json, "urls", what);
  if (const auto* platform = field(json, "platform")) {
    if (!platform->is_object()) wrong_type(what, "platform", "an object");
    descriptor.platform = Platform{string_field(*platform, "os", what), string_field(*platform, "architecture", what), string_field(*platform, "variant", what)};
  }
  return descriptor;
}

nlohmann::json to_json(const Descriptor& descriptor) {
  nlohmann::json json{{"mediaType", descriptor.media_type}, {"digest", descriptor.digest.to_string()}, {"size", descriptor.size}};
  if (!descriptor.artifact_type.empty()) json["artifactType"] = descriptor.artifact_type;
  if (!descriptor.annotations.empty()) json["annotations"] = descriptor.annotations;
  if (!descriptor.urls.empty()) json["urls"] = descriptor.urls;
  if (descriptor.platform) {
    json["platform"] = {{"os", descriptor.platform->os}, {"architecture", descriptor.platform->architecture}};
    if (!descriptor.platform->variant.empty()) json["platform"]["variant"] = descriptor.platform->variant;
  }
  return json;
}

}  // namespace varve::oci::internal
