#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/python/conda_meta.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::python;
  try {
    const auto record = parse_conda_record({reinterpret_cast<const char*>(data), size});
    for (const auto& spec : record.depends) conda_dependency_name(spec);
    for (std::size_t i = 1; i < record.files.size(); ++i) {
      if (record.files[i - 1].path >= record.files[i].path) std::abort();
    }
  } catch (const varve::CorruptData&) {
  }
  return 0;
}
