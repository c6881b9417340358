// A rule file: read or refused with its place; patterns that were taken can be used.
#include <cstdint>
#include <cstdlib>

#include "analyzer/cuda/internal/pattern_set.h"
#include "analyzer/cuda/rules.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  if (size > 16'384) return 0;
  try {
    const auto rules = cuda::parse_rules({reinterpret_cast<const char*>(data), size}, "input");
    const cuda::internal::PatternSet set(rules.names, cuda::internal::PatternSet::Slashless::kBaseName, true);
    for (const auto* path : {"usr/lib/libcudart.so.12", "", "a//b", "nvidia"}) set.match(path);
  } catch (const CorruptData&) {
  }
  return 0;
}
