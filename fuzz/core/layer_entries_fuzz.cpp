// The layer entries' decoder: what it accepts must be valid, and stable when written again. The first byte says what
// the rest is: 0 a blob, 1 a name to normalise, 2 the columns of a blob before compression (after the numbers of
// entries and digests), which no mutation of compressed bytes would reach, 3 such columns with ELF facts.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/layer_entries.h"

namespace {

using namespace varve;

constexpr std::size_t kMaxBlock = 128 * 1024;

void normalise(ByteView raw) {
  const auto path = index::normalise_path(as_text(raw), "input");
  if (index::normalise_path(path, "again") != path) std::abort();
}

void decode(ByteView blob) {
  const auto layer = index::LayerEntries::decode(blob, "input");
  const auto again = index::LayerEntries::decode(layer.encode(), "again");
  if (again.entries != layer.entries || again.layer_digest != layer.layer_digest ||
      again.has_elf_facts != layer.has_elf_facts)
    std::abort();
}

// A frame of one raw block: a compressor would cost more than all else.
Bytes zstd_of(ByteView content) {
  Bytes frame;
  append_le(frame, std::uint32_t(0xFD2FB528));
  frame.push_back(std::byte(0xA0));  // a size of four bytes, which is the window too
  append_le(frame, std::uint32_t(content.size()));
  const auto block = std::uint32_t(content.size() << 3 | 1);  // the last
  for (const unsigned shift : {0u, 8u, 16u}) frame.push_back(std::byte(block >> shift));
  append(frame, content);
  return frame;
}

Bytes blob_of(std::string_view magic, ByteView input) {
  const auto entries = load_le<std::uint16_t>(input.data());
  const auto digests = std::uint8_t(input[2]);
  const auto columns = input.subspan(3, std::min(input.size() - 3, kMaxBlock));
  const auto compressed = zstd_of(columns);
  Bytes blob = to_bytes(as_bytes(magic));
  blob.resize(blob.size() + Digest::kBytes);
  for (const auto number : {std::uint64_t(entries), std::uint64_t(columns.size()), std::uint64_t(compressed.size()),
                            std::uint64_t(digests)})
    append_le(blob, number);
  append(blob, compressed);
  blob.resize(blob.size() + digests * Digest::kBytes);
  return blob;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  try {
    if (data[0] == 0) decode(bytes);
    if (data[0] == 1) normalise(bytes);
    if (data[0] == 2 && bytes.size() >= 3) decode(blob_of("VRVENT1\n", bytes));
    if (data[0] == 3 && bytes.size() >= 3) decode(blob_of("VRVENT2\n", bytes));
  } catch (const Error&) {
  }
  return 0;
}
