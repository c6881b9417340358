// Compressed trees and ranges of an index. The first two bytes: how large the tree is said to be, in blocks.
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/index/format/image_index.h"
#include "testing/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  if (size < 2) return 0;
  static const test::TempDir dir;
  const auto blob = std::as_bytes(std::span(data + 2, size - 2));
  for (const auto form : {index::kTreeMediaType, index::kPlainTreeMediaType}) {
    try {
      AtomicFile file(dir / "tree");
      index::unpack_tree(form, blob, (data[0] + 256 * std::uint64_t(data[1])) * 4096, "input", file);
    } catch (const Error&) {
    }
  }
  try {
    const auto ranges = index::unpack_ranges(blob, "input");
    if (index::unpack_ranges(index::pack_ranges(ranges), "again").encode() != ranges.encode()) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
