// The decoder of profiles: what it accepts must be exactly what the encoder writes, and what is made of it must be a
// profile again.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto profile = index::Profile::decode(bytes, "input");
    if (profile.encode() != to_bytes(bytes)) std::abort();
    if (index::merge_profiles({profile}, 0).bytes() != profile.bytes()) std::abort();
    if (profile.recordings <= index::kMaxProfileRecordings / 2) {
      const auto twice = index::merge_profiles({profile, profile}, 0);
      if (twice.bytes() != profile.bytes() || twice.encode().empty()) std::abort();
    }
    if (!profile.of_layers({}).ranges.empty()) std::abort();
    profile.check({}, "input");
  } catch (const CorruptData&) {
  }
  return 0;
}
