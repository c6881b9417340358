// .pth, .egg-link and the generated modules of editable installs.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/python/module_file.h"
#include "analyzer/python/path_file.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::python;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = parse_path_file(text);
  for (const auto& module : file.modules) {
    if (!is_dotted_name(module)) std::abort();
  }
  parse_egg_link(text);
  try {
    parse_editable_finder(text);
  } catch (const varve::CorruptData&) {
  }
  return 0;
}
