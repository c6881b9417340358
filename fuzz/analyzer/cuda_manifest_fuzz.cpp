// A proof from anywhere: read or refused; what was read is written and read again as the same.
#include <cstdint>
#include <cstdlib>

#include "analyzer/cuda/manifest.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    const auto manifest = cuda::parse_manifest({reinterpret_cast<const char*>(data), size}, "input");
    const auto json = cuda::to_json(manifest);
    const auto again = cuda::parse_manifest(json, "output");
    if (cuda::to_json(again) != json || !cuda::compare(manifest, again).empty()) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
