// Device code in any file: reads stay inside it, end, and count no more than there is.
#include <cstdint>
#include <cstdlib>

#include "analyzer/packages/cuda_architectures.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const ByteView file(reinterpret_cast<const std::byte*>(data), size);
  const auto found = packages::read_device_code(size, [&](ByteRange range) {
    if (!range.fits_in(size)) std::abort();
    return to_bytes(file.subspan(range.offset, range.length));
  });
  // Sections of a hostile file may overlap, so that bytes count several times, but an entry is never larger than the
  // file.
  for (const auto& [name, amount] : found)
    if (amount.bytes / amount.entries > size) std::abort();
  return 0;
}
