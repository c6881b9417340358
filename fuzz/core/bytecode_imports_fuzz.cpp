// What a module's bytecode imports: never a crash, views into it, within the bounds that the daemon relies on, and in
// time that its size bounds.
#include <cstdint>
#include <cstdlib>

#include "core/index/python/bytecode_imports.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto imports = index::imports_of(bytes);
  if (!imports) return 0;
  if (imports->size() > index::kMaxImports) std::abort();
  const auto inside = [&](std::string_view text) {
    const auto* begin = reinterpret_cast<const char*>(data);
    if (!text.empty() && (text.data() < begin || text.data() + text.size() > begin + size)) std::abort();
  };
  std::size_t members = 0;
  for (const auto& import : *imports) {
    inside(import.name);
    if (import.name.empty() && import.level == 0) std::abort();
    members += import.members.size();
    for (const auto member : import.members) inside(member);
  }
  if (members > index::kMaxImportMembers) std::abort();
  return 0;
}
