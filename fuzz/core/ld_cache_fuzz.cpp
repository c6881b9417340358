// /etc/ld.so.cache of an image: read or refused, never out of bounds, and no name longer than the limit.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/elf/ld_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    for (const auto& entry : index::parse_ld_cache({reinterpret_cast<const char*>(data), size}, "cache"))
      if (entry.name.size() > index::kMaxLdCacheText || entry.path.size() > index::kMaxLdCacheText) std::abort();
  } catch (const CorruptData&) {
  }
  return 0;
}
