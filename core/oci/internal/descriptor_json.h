#pragma once
#include <string>
#include <string_view>

#include "core/base/text/json_document.h"
#include "core/oci/descriptor.h"

namespace varve::oci::internal {

// Throws CorruptData for a missing or negative size or a digest that is none, Unsupported for digests other than
// sha256.
Descriptor descriptor_from_json(const JsonValue& object);
// Only the members that are set; keys sorted.
nlohmann::json descriptor_to_json(const Descriptor& descriptor);
// The media type of a manifest or index that nothing else describes: what it says itself, else what its members show.
std::string document_media_type(ByteView json, std::string_view what);

}  // namespace varve::oci::internal
