// /etc/ld.so.cache of an image: read or refused, never out of bounds, and no name longer than the limit.
#include <cstdint>
#include <cstdlib>

#include "analyzer/elf/ld_cache.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    for (const auto& entry : elf::parse_ld_cache({reinterpret_cast<const char*>(data), size}, "cache"))
      if (entry.name.size() > elf::kMaxLdCacheText || entry.path.size() > elf::kMaxLdCacheText) std::abort();
  } catch (const CorruptData&) {
  }
  return 0;
}
