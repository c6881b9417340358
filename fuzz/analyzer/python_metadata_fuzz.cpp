// METADATA and PKG-INFO; also top_level.txt, pyvenv.cfg, direct_url.json, which are as small.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/python/core_metadata.h"
#include "analyzer/python/install_record.h"
#include "analyzer/python/module_file.h"
#include "core/base/errors.h"

namespace {

using namespace varve::python;

void require(bool fact) {
  if (!fact) std::abort();
}

void read_direct_url(std::string_view text) {
  try {
    parse_direct_url(text);
  } catch (const varve::CorruptData&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto metadata = parse_core_metadata(text);
  if (metadata.import_names) {
    for (const auto& name : *metadata.import_names) require(is_dotted_name(name.name));
  }
  for (const auto& name : parse_top_level(text)) require(is_dotted_name(name));
  parse_pyvenv_cfg(text);
  parse_installer(text);
  read_direct_url(text);
  return 0;
}
