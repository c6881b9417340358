#include "core/index/format/tree_columns.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"
#include "testing/collected_tree.h"
#include "testing/one_encoding.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::index {
namespace {

Bytes decoded(ByteView columns, std::uint64_t tree_bytes, std::size_t* largest = nullptr) {
  test::CollectedTree tree;
  decode_tree_columns(columns, tree_bytes, "columns", tree.sink());
  EXPECT_EQ(tree.written, tree.bytes.size()) << "some was written twice, or not at all";
  if (largest != nullptr) *largest = tree.largest_piece;
  return std::move(tree.bytes);
}

// A tree that is small enough for each of its bits to be tried, with something in each column.
Tree small_tree() {
  Tree tree;
  tree.layers = 1;
  const auto file = test::make_file(700, {{0, {0, 512, 700}}});
  file->mtime_seconds = 1'700'000'000;
  file->xattrs["user.one"] = "of its own";
  test::put(tree, "a/file", file);
  test::put(tree, "a/linked", file);
  test::put(tree, "b/next", test::make_file(10, {{0, {0, 2048, 10}}}));
  test::put(tree, "b/empty", test::make_file(0, {}));
  test::put(tree, "b/sparse", test::make_file(20'000, {{0, {8192, 4096, 100}}}));
  test::put(tree, "link", test::make_symlink("a/file"));
  for (const auto* path : {"b/next", "link"}) test::find(tree, path)->xattrs["user.both"] = "shared";
  return tree;
}

ErofsImage written(const Tree& tree) { return write_erofs(tree, {std::string(64, 'f')}, {1 << 20}); }

TEST(TreeColumnsTest, GiveBackEveryByte) {
  const test::TempDir dir;
  const test::FakeLayers layers(dir.path(), test::sizes_of_horrors());
  for (const std::size_t many : {0, 5000}) {
    const auto image = write_erofs(test::malformed_tree(many), layers.tags(), layers.stream_bytes());
    const auto columns = encode_tree_columns(image.bytes);
    std::size_t largest = 0;
    EXPECT_EQ(decoded(columns, image.bytes.size(), &largest), image.bytes);
    EXPECT_LT(columns.size(), image.bytes.size() / 2);
    EXPECT_GT(image.bytes.size(), 1u << 20) << "one thread alone writes it";
    EXPECT_LT(largest, 256u << 10);
  }
}

TEST(TreeColumnsTest, AnEmptyTreeHasThem) {
  Tree tree;
  tree.layers = 1;
  const auto image = written(tree);
  EXPECT_EQ(decoded(encode_tree_columns(image.bytes), image.bytes.size()), image.bytes);
}

TEST(TreeColumnsTest, ADirectoryMayFillItsBlocks) {
  for (std::size_t names = 1; names < 90; ++names) {  // every length of the last block
    Tree tree;
    tree.layers = 1;
    for (std::size_t i = 0; i < names; ++i)
      test::put(tree, "d/" + std::string(1 + i % 40, 'n') + std::to_string(i), test::make_file(0, {}));
    const auto image = written(tree);
    EXPECT_EQ(decoded(encode_tree_columns(image.bytes), image.bytes.size()), image.bytes) << names;
  }
}

TEST(TreeColumnsTest, OneTreeHasOneForm) {
  static const auto kImage = written(small_tree());
  struct Columns {
    Bytes tree;
    static Columns decode(ByteView bytes, std::string_view what) {
      Columns columns{decoded(bytes, kImage.bytes.size())};
      EXPECT_EQ(columns.tree.size(), kImage.bytes.size());
      ErofsReader(columns.tree, std::string(what)).check();
      return columns;
    }
    Bytes encode() const { return encode_tree_columns(tree); }
  };
  test::expect_one_encoding<Columns>(encode_tree_columns(kImage.bytes));
}

TEST(TreeColumnsTest, WhatIsAcceptedPassesTheWholeCheck) {
  const auto image = written(small_tree());
  const auto columns = encode_tree_columns(image.bytes);
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < columns.size(); ++at) {
    for (const int change : {1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x2f, 0xff}) {
      auto changed = columns;
      changed[at] ^= std::byte(change);
      try {
        test::CollectedTree collected;
        const auto with_attributes = decode_tree_columns(changed, image.bytes.size(), "changed", collected.sink());
        auto& tree = collected.bytes;
        erofs::seal(tree);
        const ErofsReader reader(tree, "changed");
        reader.check_rest(with_attributes);
        EXPECT_NO_THROW(reader.check()) << at << " ^ " << change;
        ++accepted;
      } catch (const CorruptData&) {
      }
    }
  }
  EXPECT_GT(accepted, 1000u);
}

TEST(TreeColumnsTest, OfAnotherSizeThereIsNone) {
  const auto image = written(small_tree());
  const auto columns = encode_tree_columns(image.bytes);
  for (const auto bytes : {std::uint64_t(0), image.bytes.size() - 1, image.bytes.size() - 512, kMaxTreeBytes + 512})
    EXPECT_THROW(decoded(columns, bytes), CorruptData) << bytes;
  // Further blocks would lie among the shared attributes.
  EXPECT_THROW(decoded(columns, image.bytes.size() + 512), CorruptData);
}

TEST(TreeColumnsTest, ATreeOfAnotherProgramIsRefused) {
  auto image = written(small_tree());
  image.bytes[ErofsReader(image.bytes, "tree").root() * 32 + 6] = std::byte(9);  // links of the root
  EXPECT_THROW(encode_tree_columns(image.bytes), Error);
}

}  // namespace
}  // namespace varve::index
