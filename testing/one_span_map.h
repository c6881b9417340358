#pragma once
#include "core/index/format/layer_map.h"

namespace varve::test {

// Of a gzip layer that no blob stands for: valid, and all that tests of what stores maps ask for.
inline index::LayerMap one_span_map(const Digest& layer, const Digest& diff_id, std::uint64_t stream_bytes) {
  index::LayerMap map{.layer_digest = layer,
                      .diff_id = diff_id,
                      .format = index::LayerFormat::kGzip,
                      .compressed_bytes = 1000,
                      .stream_bytes = stream_bytes,
                      .windows_digest = {},
                      .windows_bytes = 0,
                      .spans = {},
                      .digests = {{.compressed = digest_of("c"), .stream = digest_of("s")}},
                      .window_digests = {}};
  map.spans.push_back({.stream_range = {0, stream_bytes},
                       .compressed_range = {0, 1000},
                       .bits = 0,
                       .member_header = true,
                       .window = {}});
  return map;
}

}  // namespace varve::test
