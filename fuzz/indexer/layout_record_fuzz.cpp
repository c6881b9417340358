// A layout record, as any repository may serve it. What is accepted must come back the same when written again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/errors.h"
#include "indexer/layout_record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    const auto record = indexer::parse_layout_record({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (indexer::parse_layout_record(indexer::to_json(record), "again") != record) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
