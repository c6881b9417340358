#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/python/entry_points.h"
#include "analyzer/python/module_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::python;
  for (const auto& entry : parse_entry_points({reinterpret_cast<const char*>(data), size}).entries) {
    if (entry.group.empty() || entry.name.empty() || !is_dotted_name(entry.module)) std::abort();
  }
  return 0;
}
