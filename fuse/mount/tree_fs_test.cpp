#include "fuse/mount/tree_fs.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/errors.h"
#include "fuse/mount/tree_operations.h"
#include "testing/fake_image.h"

namespace varve::fuse {
namespace {

class TreeFsTest : public ::testing::Test {
 protected:
  // Reads synchronously; only for what is here.
  std::string read(const TreeFs& fs, index::Nid nid, ByteRange range) {
    std::string answer = "no answer";
    fs.read(nid, range,
            [&](std::exception_ptr error, ByteView bytes) { answer = error ? "error" : std::string(as_text(bytes)); });
    return answer;
  }

  test::FakeImage image_ = test::FakeImage::of_horrors(300);
  TreeFs fs_{*image_.reader, image_.mapping.bytes(), image_.devices};
};

TEST_F(TreeFsTest, EveryFileReadsAsTheLayersSay) {
  std::size_t compared = 0;
  for (const auto& [path, seen] : test::listing_of(image_.tree)) {
    if (seen.info.type != FileType::kRegular) continue;
    const auto nid = image_.reader->resolve("/" + path, false);
    ASSERT_TRUE(nid) << path;
    const auto inode = test::find(image_.tree, path);
    for (const auto& place : test::places_to_compare(*inode)) {
      ASSERT_EQ(read(fs_, *nid, place), image_.layers.expected(*inode, place.offset, place.length))
          << path << " at " << place.offset;
      ++compared;
    }
  }
  EXPECT_GT(compared, 20u);
}

TEST_F(TreeFsTest, ReadsEndWithTheFile) {
  for (const auto& [path, seen] : test::listing_of(image_.tree)) {
    if (seen.info.type != FileType::kRegular) continue;
    const auto nid = *image_.reader->resolve("/" + path, false);
    EXPECT_EQ(read(fs_, nid, {seen.info.size, 4096}), "") << path;
    EXPECT_EQ(read(fs_, nid, {~0ull - 10, 4096}), "") << path;
  }
}

TEST_F(TreeFsTest, TellsHolesFromContent) {
  int holes = 0;
  for (const auto& [path, seen] : test::listing_of(image_.tree)) {
    if (seen.info.type != FileType::kRegular) continue;
    const auto nid = *image_.reader->resolve("/" + path, false);
    const auto size = seen.info.size;
    for (std::uint64_t at = 0; at < size;) {
      const auto data = fs_.next_data(nid, at).value_or(size);
      ASSERT_GE(data, at) << path;
      ASSERT_LE(data, size) << path;
      const auto hole = read(fs_, nid, {at, std::min<std::uint64_t>(data - at, 1 << 20)});
      ASSERT_EQ(hole.find_first_not_of('\0'), hole.npos) << path << ": a hole with content at " << at;
      holes += data > at ? 1 : 0;
      if (data == size) break;
      at = fs_.next_hole(nid, data).value();
      ASSERT_GT(at, data) << path;
      ASSERT_LE(at, size) << path;
    }
    for (const auto beyond : {size, size + 1, ~std::uint64_t(0)}) {
      EXPECT_EQ(fs_.next_data(nid, beyond), std::nullopt) << path;
      EXPECT_EQ(fs_.next_hole(nid, beyond), std::nullopt) << path;
    }
  }
  EXPECT_GT(holes, 2);
}

TEST_F(TreeFsTest, TrustedAttributesAreListedForThoseWhoMayReadThem) {
  index::Tree tree;
  tree.layers = 1;
  auto file = test::make_file(0, {});
  file->xattrs = {{"trusted.a", "1"}, {"user.b", "2"}};
  test::put(tree, "file", file);
  const test::FakeImage image(std::move(tree), {512});
  const TreeFs fs(*image.reader, image.mapping.bytes(), image.devices);
  const auto nid = *image.reader->resolve("/file", false);
  EXPECT_EQ(fs.xattr_names(nid, true), std::string("trusted.a\0user.b\0", 17));
  EXPECT_EQ(fs.xattr_names(nid, false), std::string("user.b\0", 7));
}

TEST_F(TreeFsTest, ReadingADirectoryIsAnError) { EXPECT_THROW(read(fs_, fs_.root(), {0, 1}), std::system_error); }

TEST_F(TreeFsTest, AFailingStreamFailsTheRead) {
  for (const auto& stream : image_.streams) stream->fail_all("no registry");
  int failed = 0;
  for (const auto& [path, seen] : test::listing_of(image_.tree)) {
    if (seen.info.type != FileType::kRegular || seen.info.size == 0) continue;
    if (read(fs_, *image_.reader->resolve("/" + path, false), {0, 1}) == "error") ++failed;
  }
  EXPECT_GT(failed, 5);
}

TEST_F(TreeFsTest, KnowsWhichAttributesThereAre) {
  bool any = false;
  for (const auto& [path, seen] : test::listing_of(image_.tree)) any = any || !seen.xattrs.empty();
  EXPECT_EQ(fs_.xattr_use().any, any);

  index::Tree plain;
  plain.layers = 1;
  test::put(plain, "file", test::make_file(0, {}));
  test::FakeImage without(std::move(plain), {512});
  EXPECT_FALSE(TreeFs(*without.reader, without.mapping.bytes(), without.devices).xattr_use().any);
}

TEST_F(TreeFsTest, OwnersAreShownAsTheMapSays) {
  const IdMap everyone_is_1000({}, 1000);
  const TreeFs mapped(*image_.reader, image_.mapping.bytes(), image_.devices, {everyone_is_1000, everyone_is_1000});
  for (const auto& [path, seen] : test::listing_of(image_.tree)) {
    const auto info = mapped.attributes(*image_.reader->resolve("/" + path, false));
    ASSERT_EQ(info.uid, 1000u) << path;
    ASSERT_EQ(info.gid, 1000u) << path;
  }
}

TEST_F(TreeFsTest, MissingDevicesAreRefused) {
  image_.devices.pop_back();
  EXPECT_THROW(TreeFs(*image_.reader, image_.mapping.bytes(), image_.devices), CorruptData);
}

TEST(NodeNumbers, AreTheTreesOwnSaveThatTheRootIsOne) {
  for (const index::Nid root : {index::Nid(0), index::Nid(1), index::Nid(36)}) {
    EXPECT_EQ(node_of(root, root), 1u);
    std::set<std::uint64_t> nodes;
    for (const index::Nid nid : {index::Nid(0), index::Nid(1), index::Nid(2), index::Nid(36), index::Nid(1) << 40}) {
      EXPECT_NE(node_of(nid, root), 0u);
      EXPECT_EQ(nid_of(node_of(nid, root), root), nid);
      nodes.insert(node_of(nid, root));
    }
    EXPECT_EQ(nodes.size(), 5u);
  }
}

}  // namespace
}  // namespace varve::fuse
