// What a usage database of others holds in its columns: sketches of users, and lists as JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "analyzer/usage/internal/clean_text.h"
#include "analyzer/usage/internal/user_sketch.h"
#include "core/base/errors.h"

namespace {

using namespace varve;
using namespace varve::usage;

void try_sketch(ByteView bytes) {
  try {
    auto sketch = UserSketch::parse(bytes);
    if (!bytes.empty() && sketch.bytes() != to_bytes(bytes)) std::abort();
    const auto count = sketch.count();
    sketch.merge(UserSketch::parse(bytes));
    if (sketch.count() != count) std::abort();
    for (std::uint64_t user = 1; user <= 300; ++user) sketch.add(user * 0x9E3779B97F4A7C15);
    if (UserSketch::parse(sketch.bytes()).count() != sketch.count()) std::abort();
  } catch (const CorruptData&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] % 2 == 0) {
    try_sketch(bytes);
    return 0;
  }
  const std::string text(as_text(bytes));
  const auto texts = parse_texts(text);
  const auto clean = parse_texts(list_text(texts));  // zero bytes are none that a database takes
  if (clean.size() != texts.size() || parse_texts(list_text(clean)) != clean) std::abort();
  if (parse_numbers(list_text(parse_numbers(text))) != parse_numbers(text)) std::abort();
  return 0;
}
