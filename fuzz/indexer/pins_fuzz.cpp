// A list of pins, as any repository may serve it. What is accepted must come back the same when written again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/errors.h"
#include "indexer/pins.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    const auto pins =
        indexer::parse_pins(as_bytes(std::string_view(reinterpret_cast<const char*>(data), size)), "fuzz");
    const auto list = indexer::list_of_pins(pins);
    if (indexer::list_of_pins(indexer::parse_pins(as_bytes(list), "again")) != list) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
