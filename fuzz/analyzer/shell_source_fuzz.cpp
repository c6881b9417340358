// Any bytes as a shell's cell, and as the line of a magic.
#include <cstdint>
#include <string>

#include "fuzz/analyzer/source_findings_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::notebooks;
  for (const std::string_view before : {"%%bash\n", "!", "%pip "}) {
    std::string text(before);
    text.append(reinterpret_cast<const char*>(data), size);
    check_findings(read_python({Cell{.text = text, .number = 1}}), text);
  }
  return 0;
}
