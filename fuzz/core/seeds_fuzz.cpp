// The decoder of seeds: what it accepts must be exactly what the encoder writes, each literal in a range, packed and
// unpacked the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    index::unpack_seeds(bytes, "blob");
  } catch (const CorruptData&) {
  } catch (const Unsupported&) {
  }
  try {
    const auto seeds = index::Seeds::decode(bytes, "input");
    if (seeds.encode() != to_bytes(bytes)) std::abort();
    if (index::unpack_seeds(index::pack_seeds(seeds), "packed") != seeds) std::abort();
    for (const auto& layer : seeds.layers)
      for (const auto& literal : layer.literals) {
        const auto holds = [&](const index::SeedRange& range) {
          return range.stream_range.offset <= literal.stream_offset &&
                 literal.stream_range().end() <= range.stream_range.end();
        };
        if (std::ranges::count_if(layer.ranges, holds) != 1) std::abort();
      }
    seeds.check({}, "input");
  } catch (const CorruptData&) {
  }
  return 0;
}
