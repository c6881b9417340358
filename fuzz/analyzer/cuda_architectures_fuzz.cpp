// Device code in any file: reads and entries stay inside it, end, and count no more than there is.
#include <cstdint>
#include <cstdlib>

#include "analyzer/packages/cuda_architectures.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const ByteView file(reinterpret_cast<const std::byte*>(data), size);
  const index::RangeReader read = [&](ByteRange range) {
    if (!range.fits_in(size)) std::abort();
    return to_bytes(file.subspan(range.offset, range.length));
  };
  std::uint64_t entries = 0;
  packages::for_each_code(size, read, [&](const packages::CodeEntry& entry) {
    if (entry.range.length == 0 || !entry.range.fits_in(size) || entry.target.name().empty()) std::abort();
    ++entries;
  });
  // Sections of a hostile file may overlap, so that bytes count several times, but an entry is never larger than the
  // file.
  std::uint64_t counted = 0;
  for (const auto& [name, amount] : packages::read_device_code(size, read)) {
    if (amount.bytes / amount.entries > size) std::abort();
    counted += amount.entries;
  }
  if (counted > entries) std::abort();
  return 0;
}
