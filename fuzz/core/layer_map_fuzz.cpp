// The layer map's decoder: what it accepts must be safe to use and be exactly what the encoder writes.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/layer_map.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto map = index::LayerMap::decode(bytes, "input");
    if (map.encode() != to_bytes(bytes)) std::abort();
    for (std::size_t i = 0; i < map.spans.size(); ++i) {
      if (map.span_at(map.spans[i].stream_range.end() - 1) != i) std::abort();
    }
    if (map.stream_bytes != 0 && map.spans_of({.offset = 0, .length = map.stream_bytes}).second != map.spans.size())
      std::abort();
  } catch (const Error&) {
  }
  return 0;
}
