#pragma once
// JSON from outside: bounded in depth, and every access checked, so that a wrong document gives one line that names it.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/bytes.h"
#include "core/oci/descriptor.h"

namespace varve::oci::internal {

// Throws CorruptData: not JSON, not an object, nested deeper than kMaxJsonDepth.
nlohmann::json parse_object(ByteView bytes, std::string_view what);

// All throw CorruptData naming `what` and the field if it has another type. Absent and null are the same.
const nlohmann::json* field(const nlohmann::json& object, const char* name);
std::string string_field(const nlohmann::json& object, const char* name, std::string_view what);
std::map<std::string, std::string> string_map_field(const nlohmann::json& object, const char* name, std::string_view what);
std::vector<std::string> string_list_field(const nlohmann::json& object, const char* name, std::string_view what);
// Absent is an empty array.
const nlohmann::json& array_field(const nlohmann::json& object, const char* name, std::string_view what);

// image-spec descriptor.md. Throws CorruptData (also for a negative or fractional size) or Unsupported (other digest algorithms).
Descriptor parse_descriptor(const nlohmann::json& json, std::string_view what);
nlohmann::json to_json(const Descriptor& descriptor);

}  // namespace varve::oci::internal
