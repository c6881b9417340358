#pragma once
// Which components share a layer: by use, change rate and size, and where they were in the image's last version. Pure:
// the same input gives the same layers. docs/design/packing.md.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/merge/placement.h"
#include "indexer/layout_record.h"

namespace varve::indexer {

struct PackLimits {
  std::uint32_t max_layers = 127;  // of the image, those kept as is and that of the shared directories included
  std::uint64_t max_layer_bytes = 8'000'000'000;  // stream side; a component above it is cut
  std::uint64_t min_layer_bytes = 0;              // smaller ones are put together; 0 = smallest_layer_bytes()
  bool operator==(const PackLimits&) const = default;
};

// A thousandth of what is packed, as a power of two from 1 to 8 MiB: a hundred layers or less, for small images too.
std::uint64_t smallest_layer_bytes(std::uint64_t packed_bytes);

struct ComponentFacts {
  std::string name;     // "pip:numpy"; a piece of one that is too large: "folder:models//2of3"
  std::string version;  // "" = has none
  index::Tier tier = index::Tier::kSystem;
  std::uint64_t bytes = 0;  // stream side
  Digest content;           // unit_digest(); paths are part of it, so that no two components have the same
  std::optional<Digest> timeless = std::nullopt;  // timeless_digest(): equal = nothing differs but times, and what
                                                  // bytecode says of them
};

struct PackedLayer {
  index::Tier tier = index::Tier::kSystem;
  std::vector<std::string> components;  // by name
  // Number of the previous version's layer with the very same content; its blob is taken as it is. -1 = none.
  int same_as = -1;
};

// In stacking order, for between `kept_as_is` layers that stay as they are beneath and one of shared directories on
// top. A layer of the previous version whose content is all there still stays together, if it was written by the same
// `writer` (RecordedLayer::writer) and few of its bytes changed tier; all else is packed anew. No layer is above
// max_layer_bytes, none below the smallest size unless it is the only one of its tier or no other could take it. Throws
// UsageError if the limits cannot be kept, naming the component where it is one, and for components that share a name
// or a content.
std::vector<PackedLayer> pack_layers(const std::vector<ComponentFacts>& components, std::uint32_t kept_as_is,
                                     const LayoutRecord* previous, std::string_view writer, const PackLimits& limits);

// What to record of components: what was recorded of them before, counted on. In the same order.
std::vector<RecordedComponent> recorded_components(const std::vector<ComponentFacts>& components,
                                                   const LayoutRecord* previous);

}  // namespace varve::indexer
