// The decoder of start-up packs: what it accepts must be exactly what the encoder writes, packed and unpacked the same,
// and each pack of it a layer that the map's own decoder takes.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/image_index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    index::unpack_start_packs(index::kStartPacksMediaType, bytes, "blob");
  } catch (const CorruptData&) {
  } catch (const Unsupported&) {
  }
  try {
    const auto packs = index::StartPacks::decode(bytes, "input");
    if (packs.encode() != to_bytes(bytes)) std::abort();
    if (index::unpack_start_packs(index::kStartPacksMediaType, index::pack_start_packs(packs), "packed") != packs)
      std::abort();
    for (const auto& group : packs.groups) {
      const auto map = group.pack.map();
      if (index::LayerMap::decode(map.encode(), "map") != map) std::abort();
    }
    packs.check({}, "input");
  } catch (const CorruptData&) {
  }
  return 0;
}
