#pragma once
// For tests of what names an image's layers: two of them, in the order in which they are listed.
#include <algorithm>
#include <memory>

#include "core/index/format/layer_map.h"

namespace varve::test {

inline const Digest kA = std::min(digest_of("a"), digest_of("b"));
inline const Digest kB = std::max(digest_of("a"), digest_of("b"));

// Says how long the layer is, and nothing else.
inline std::shared_ptr<index::LayerMap> map_of(const Digest& layer, std::uint64_t stream_bytes) {
  auto map = std::make_shared<index::LayerMap>();
  map->layer_digest = layer;
  map->stream_bytes = stream_bytes;
  return map;
}

}  // namespace varve::test
