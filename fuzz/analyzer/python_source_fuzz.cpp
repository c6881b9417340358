// Any bytes as a cell of a Python notebook, and as a module.
#include <cstdint>

#include "fuzz/analyzer/source_findings_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::notebooks;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_findings(read_python({Cell{.text = text, .number = 1}}), text);
  check_findings(read_module(text), text);
  return 0;
}
