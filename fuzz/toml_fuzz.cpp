// Any text as TOML: read or refused with a line, never more nesting than the limits allow.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/errors.h"
#include "core/base/toml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  try {
    const auto root = parse_toml({reinterpret_cast<const char*>(data), size}, "input.toml");
    if (root.kind != TomlValue::Kind::kTable) std::abort();
  } catch (const CorruptData& error) {
    if (!std::string(error.what()).starts_with("input.toml:")) std::abort();
  }
  return 0;
}
