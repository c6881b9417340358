// The decoder of start-up packs: what it accepts must be exactly what the encoder writes, and each pack of it a layer
// that the map's own decoder takes.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/start_packs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto packs = index::StartPacks::decode(bytes, "input");
    if (packs.encode() != to_bytes(bytes)) std::abort();
    for (const auto& group : packs.groups) {
      const auto map = group.pack.map();
      if (index::LayerMap::decode(map.encode(), "map") != map) std::abort();
    }
    packs.check({}, "input");
  } catch (const CorruptData&) {
  }
  return 0;
}
