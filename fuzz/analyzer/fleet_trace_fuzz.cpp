// A trace of arrivals: read whole or refused with its line.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/fleet/demand.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto demand = varve::fleet::parse_trace(text, "trace");
    if (demand.arrivals_per_hour.empty() || !(demand.mean() >= 0)) std::abort();
  } catch (const varve::CorruptData&) {
  }
  return 0;
}
