#pragma once
#include "core/base/json_document.h"
#include "core/oci/descriptor.h"

namespace varve::oci::internal {

// Throws CorruptData for a missing or negative size or a digest that is none, Unsupported for digests other than
// sha256.
Descriptor descriptor_from_json(const JsonValue& object);
// Only the members that are set; keys sorted.
nlohmann::json descriptor_to_json(const Descriptor& descriptor);

}  // namespace varve::oci::internal
