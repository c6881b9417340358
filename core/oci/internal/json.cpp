#include "core/oci/internal/json.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/json_shape.h"
#include "core/oci/manifest.h"

namespace varve::oci::internal {
namespace {

using nlohmann::json;

const json* typed_member(const json& object, const char* name, json::value_t type, std::string_view what) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return nullptr;
  if (found->type() != type) fail<CorruptData>("{}: \"{}\" has the wrong type ({})", what, name, found->type_name());
  return &*found;
}

std::optional<Platform> platform_member(const json& object, std::string_view what) {
  const auto* platform = object_member(object, "platform", what);
  if (platform == nullptr) return std::nullopt;
  return Platform{.os = string_member(*platform, "os", what),
                  .architecture = string_member(*platform, "architecture", what),
                  .variant = string_member(*platform, "variant", what)};
}

}  // namespace

json parse_json_object(ByteView bytes, std::uint64_t limit_bytes, std::string_view what) {
  if (bytes.size() > limit_bytes) fail<Unsupported>("{}: {} bytes, the limit is {}", what, bytes.size(), limit_bytes);
  const auto text = as_text(bytes);
  check_json_shape(text, kMaxJsonDepth, kMaxJsonValues, what);
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& error) {
    fail<CorruptData>("{}: no valid JSON at byte {}", what, error.byte);
  } catch (const json::exception&) {
    fail<CorruptData>("{}: JSON with a number out of range", what);
  }
  if (!document.is_object()) fail<CorruptData>("{}: a JSON {} where an object is expected", what, document.type_name());
  return document;
}

const json* object_member(const json& object, const char* name, std::string_view what) {
  return typed_member(object, name, json::value_t::object, what);
}

const json* array_member(const json& object, const char* name, std::string_view what) {
  return typed_member(object, name, json::value_t::array, what);
}

std::string string_member(const json& object, const char* name, std::string_view what) {
  const auto* member = typed_member(object, name, json::value_t::string, what);
  return member == nullptr ? std::string() : member->get<std::string>();
}

std::vector<std::string> strings_member(const json& object, const char* name, std::string_view what) {
  std::vector<std::string> strings;
  const auto* member = array_member(object, name, what);
  if (member == nullptr) return strings;
  for (const auto& item : *member) {
    if (!item.is_string())
      fail<CorruptData>("{}: \"{}\" holds a {} where a string is expected", what, name, item.type_name());
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::map<std::string, std::string> string_map_member(const json& object, const char* name, std::string_view what) {
  std::map<std::string, std::string> strings;
  const auto* member = object_member(object, name, what);
  if (member == nullptr) return strings;
  for (const auto& [key, value] : member->items()) {
    if (!value.is_string())
      fail<CorruptData>("{}: \"{}\" holds a {} where a string is expected", what, name, value.type_name());
    strings.emplace(key, value.get<std::string>());
  }
  return strings;
}

Descriptor descriptor_from_json(const json& object, std::string_view what) {
  if (!object.is_object()) fail<CorruptData>("{}: a descriptor is a JSON {}, not an object", what, object.type_name());
  Descriptor descriptor;
  descriptor.media_type = string_member(object, "mediaType", what);
  descriptor.digest = Digest::parse(string_member(object, "digest", what), what);
  const auto size = object.find("size");
  if (size == object.end() || !size->is_number_unsigned())
    fail<CorruptData>("{}: descriptor of {} has no valid size", what, descriptor.digest.to_string());
  descriptor.size = size->get<std::uint64_t>();
  descriptor.artifact_type = string_member(object, "artifactType", what);
  descriptor.annotations = string_map_member(object, "annotations", what);
  descriptor.urls = strings_member(object, "urls", what);
  descriptor.platform = platform_member(object, what);
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

}  // namespace varve::oci::internal
