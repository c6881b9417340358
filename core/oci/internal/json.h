#pragma once
// JSON documents of others, parsed with limits, and their members read with messages that name the document.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/base/bytes.h"
#include "core/oci/descriptor.h"

namespace varve::oci::internal {

// More values than any real manifest, config or credential file has; bounds the memory that a small document can ask
// for.
inline constexpr std::size_t kMaxJsonValues = 1'000'000;

// Parses an object. Throws Unsupported above `limit_bytes`, kMaxJsonDepth or kMaxJsonValues, and CorruptData (with the
// byte position) for anything that is no JSON object. `what` names the document.
nlohmann::json parse_json_object(ByteView json, std::uint64_t limit_bytes, std::string_view what);

// The members below may be absent or null, which gives the empty value; a member of another type is CorruptData.
std::string string_member(const nlohmann::json& object, const char* name, std::string_view what);
std::vector<std::string> strings_member(const nlohmann::json& object, const char* name, std::string_view what);
std::map<std::string, std::string> string_map_member(const nlohmann::json& object, const char* name,
                                                     std::string_view what);
// nullptr if absent or null; CorruptData if it is no object (array).
const nlohmann::json* object_member(const nlohmann::json& object, const char* name, std::string_view what);
const nlohmann::json* array_member(const nlohmann::json& object, const char* name, std::string_view what);

// Throws CorruptData for a missing or negative size or a digest that is none, Unsupported for digests other than
// sha256.
Descriptor descriptor_from_json(const nlohmann::json& object, std::string_view what);
// Only the members that are set; keys sorted.
nlohmann::json descriptor_to_json(const Descriptor& descriptor);

}  // namespace varve::oci::internal
