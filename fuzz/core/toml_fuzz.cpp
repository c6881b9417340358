// Any text as TOML: read or refused with a line, never more nesting than the limits allow; and every value of it asked
// for as everything that it may be taken for.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/errors.h"
#include "core/base/text/toml.h"

namespace {

using namespace varve;

template <typename Ask>
void ask(const Ask& question) {
  try {
    question();
  } catch (const CorruptData& error) {
    if (!std::string(error.what()).starts_with("input.toml:")) std::abort();
  }
}

void ask_all(const TomlValue& table) {
  ask([&] { toml_only_keys(table, {"name", "many"}, "input.toml"); });
  ask([&] { toml_string(table, "name", "input.toml", true); });
  for (const auto& [key, value] : table.table) {
    ask([&] { value.scalar_text("input.toml", key); });
    ask([&] { toml_string(table, key, "input.toml"); });
    ask([&] { toml_flag(table, key, "input.toml"); });
    ask([&] { toml_strings(table, key, "input.toml"); });
    ask([&] {
      for (const auto* inner : toml_tables(table, key, "input.toml")) ask_all(*inner);
    });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ask([&] {
    const auto root = parse_toml({reinterpret_cast<const char*>(data), size}, "input.toml");
    if (root.kind != TomlValue::Kind::kTable) std::abort();
    ask_all(root);
  });
  return 0;
}
