// The ranges device's decoder: what it accepts must be exactly what the encoder writes.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/erofs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    if (index::RangesDevice::decode(bytes, "input").encode() != to_bytes(bytes)) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
