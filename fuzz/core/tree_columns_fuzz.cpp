// The tree's columns. The first two bytes: of how many blocks the tree is said to be. Checksum and UUID are put right
// in both; then what is accepted passes the whole check of trees, and has exactly these columns.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/format/tree_columns.h"
#include "testing/collected_tree.h"

namespace {

using namespace varve;
using namespace varve::index;

// Where a tree's first bytes lie as they are: behind the magic and ten numbers.
std::size_t head_of(ByteView columns) {
  std::size_t at = 8;
  for (int numbers = 0; numbers < 10; ++at) numbers += (columns[at] & std::byte(0x80)) == std::byte(0) ? 1 : 0;
  return at;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  auto columns = to_bytes(std::as_bytes(std::span(data + 2, size - 2)));
  const auto tree_bytes = (data[0] + 256 * std::uint64_t(data[1])) * kTreeBlockBytes;
  test::CollectedTree collected;
  auto& tree = collected.bytes;
  try {
    const auto with_attributes = decode_tree_columns(columns, tree_bytes, "input", collected.sink());
    if (tree.size() != tree_bytes || collected.written != tree_bytes) std::abort();
    if (tree.size() < erofs::kSuperOffset + erofs::kBlock) return 0;
    erofs::seal(tree);
    ErofsReader(tree, "input").check_rest(with_attributes);
  } catch (const Error&) {
    return 0;
  }
  ErofsReader(tree, "input").check();
  std::ranges::copy(ByteView(tree).subspan(erofs::kSuperOffset, erofs::kSuperBytes),
                    columns.begin() + std::ptrdiff_t(head_of(columns) + erofs::kSuperOffset));
  if (encode_tree_columns(tree) != columns) std::abort();
  return 0;
}
