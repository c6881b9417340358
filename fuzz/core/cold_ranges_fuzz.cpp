// The decoder of cold ranges: what it accepts must be exactly what the encoder writes, and in order.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/cold_ranges.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto cold = index::ColdRanges::decode(bytes, "input");
    if (cold.encode() != to_bytes(bytes)) std::abort();
    std::uint64_t sum = 0;
    for (const auto& layer : cold.layers) {
      if (&cold.of(layer.layer_digest) != &layer.ranges) std::abort();
      for (const auto& range : layer.ranges) sum += range.length;
    }
    if (sum != cold.bytes()) std::abort();
    cold.check({}, "input");
  } catch (const Error&) {
  }
  return 0;
}
