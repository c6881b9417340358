// Any text as a JSON document, every value of it asked for as each type: read, or refused by the document's name.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/json_document.h"

namespace {

using varve::JsonValue;

template <typename Operation>
void attempt(const Operation& operation) {
  try {
    operation();
  } catch (const varve::Error& error) {
    if (!std::string(error.what()).starts_with("input.json: ")) std::abort();
  }
}

void ask(const JsonValue& value) {
  attempt([&] { value.text(100); });
  attempt([&] { value.number<std::uint8_t>(); });
  attempt([&] { value.number<std::int64_t>(-5); });
  attempt([&] { value.real(0, 1); });
  attempt([&] { value.flag(); });
  attempt([&] { value.digest(); });
  attempt([&] { value.base64(); });
  attempt([&] { value.texts_by_name(); });
  attempt([&] { value.only({"a"}); });
  attempt([&] { value["a"].maybe("b").texts(); });
  attempt([&] {
    for (const auto& [name, member] : value.members()) ask(member);
  });
  attempt([&] {
    for (const auto& item : value.items(1000)) ask(item);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool repeated : {true, false})
    attempt([&] {
      ask(JsonValue::parse(text, "input.json",
                           {.bytes = 1 << 16, .depth = 16, .values = 2000, .repeated_members = repeated}));
    });
  return 0;
}
