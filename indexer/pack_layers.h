#pragma once
// Which components share a layer: by use, change rate and size, and where they were in the image's last version. Pure: the same input gives the
// same layers.
#include <cstdint>
#include <string>
#include <vector>

#include "core/index/placement.h"
#include "indexer/layout_record.h"

namespace varve::indexer {

struct PackLimits {
  std::uint32_t max_layers = 127;                 // of the image, those taken over included
  std::uint64_t max_layer_bytes = 8'000'000'000;  // stream side; a single component above it is cut
  std::uint64_t min_layer_bytes = 16u << 20;      // smaller ones are put together
};

struct ComponentFacts {
  std::string name;
  index::Heat heat = index::Heat::kSystem;
  std::uint64_t bytes = 0;         // stream side
  Digest content;                  // RecordedComponent::content
};

struct PackedLayer {
  index::Heat heat = index::Heat::kSystem;
  std::vector<std::string> components;  // by name
  // The layer of the previous version with the very same content; its blob is taken as it is. -1 = none.
  int same_as = -1;
  // Of a component that is too large for one layer: which piece of how many.
  std::uint32_t piece = 0, pieces = 1;
};

// `taken_over`: layers that stay as they are beneath. In stacking order. Throws UsageError if the limits cannot be kept.
std::vector<PackedLayer> pack_layers(const std::vector<ComponentFacts>& components, std::uint32_t taken_over, const LayoutRecord* previous, const PackLimits& limits);

}  // namespace varve::indexer
