// The table of units: what is accepted can be asked anything. The first byte says what the rest is: 0 a table as it
// is, 1 one without its digest, which no mutation would reach, 2 layer entries that a table is made of.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/unit_table.h"

namespace {

using namespace varve;

void ask(ByteView bytes) {
  const auto table = index::UnitTable::decode(bytes, "input");
  std::uint64_t end = 0;
  for (std::size_t content = 0; content < table.size(); ++content) {
    const auto range = table.range(content);
    if (range.offset < end || !table.padded_range(content).fits_in(table.stream_bytes())) std::abort();
    end = range.end();
    const auto [first, last] = table.contents_of(range);
    if (first > content || last <= content) std::abort();
    if (table.is_unit(content) && !table.find(table.digest(content))) std::abort();
    if (const auto bytecode = table.bytecode(content); bytecode) table.find_bytecode(bytecode->path, range.length);
  }
  table.cut();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  try {
    if (data[0] == 0) ask(bytes);
    if (data[0] == 1) {
      auto whole = to_bytes(bytes);
      append(whole, digest_of(bytes).raw());
      ask(whole);
    }
    if (data[0] == 2) {
      const auto entries = index::LayerEntries::decode(bytes, "input");
      ask(index::UnitTable::make(entries, digest_of(bytes), 1 << 20));
    }
  } catch (const Error&) {
  }
  return 0;
}
