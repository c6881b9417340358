#include "core/index/format/erofs.h"

#include <gtest/gtest.h>

#include <fcntl.h>

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/index/format/internal/erofs_format.h"
#include "testing/temp_dir.h"
#include "testing/trees.h"

namespace varve::index {
namespace {

using test::find;
using test::make_directory;
using test::make_file;
using test::make_symlink;
using test::put;

constexpr std::size_t kMany = 5000;

class ErofsMalformedTest : public testing::Test {
 protected:
  test::TempDir dir_;
  Tree tree_ = test::malformed_tree(kMany);
  test::FakeLayers layers_{dir_.path(), test::sizes_of_horrors()};
  ErofsImage image_ = write_erofs(tree_, layers_.tags(), layers_.stream_bytes());
  ErofsReader reader_{image_.bytes, "tree"};
};

TEST_F(ErofsMalformedTest, ReadsBackWhatWasWritten) {
  const auto expected = test::listing_of(tree_);
  test::expect_same(expected, test::listing_of(reader_));
  EXPECT_NO_THROW(reader_.check());
  std::set<std::string> groups;
  for (const auto& [path, seen] : expected) groups.insert(seen.first_name);
  EXPECT_EQ(reader_.inode_count(), groups.size());
}

TEST_F(ErofsMalformedTest, FindsEveryNameAndNoOther) {
  std::size_t looked_up = 0;
  const auto look_into = [&](auto&& self, const TreeInode& directory, Nid nid) -> void {
    for (const auto& [name, child] : directory.children) {
      const auto found = reader_.lookup(nid, name);
      ASSERT_TRUE(found) << name;
      EXPECT_EQ(reader_.inode(*found).type, child->type) << name;
      EXPECT_EQ(reader_.lookup(nid, name + "\x01"), std::nullopt);
      const auto shorter = name.substr(0, name.size() - 1);
      EXPECT_EQ(reader_.lookup(nid, shorter).has_value(),
                directory.children.contains(shorter) || shorter == "." || shorter == "..")
          << name;
      ++looked_up;
      if (child->type == FileType::kDirectory) self(self, *child, *found);
    }
  };
  look_into(look_into, *tree_.root, reader_.root());
  EXPECT_GT(looked_up, kMany);
  EXPECT_EQ(reader_.lookup(reader_.root(), "."), reader_.root());
  EXPECT_EQ(reader_.lookup(reader_.root(), ".."), reader_.root());
  EXPECT_EQ(reader_.lookup(reader_.root(), ""), std::nullopt);
  EXPECT_EQ(reader_.lookup(reader_.root(), std::string(256, 'x')), std::nullopt);
}

TEST_F(ErofsMalformedTest, ReadsDirectoriesFromAnyPosition) {
  const auto many = reader_.resolve("many", true);
  ASSERT_TRUE(many);
  std::vector<std::string> names;
  std::vector<std::uint64_t> positions;
  reader_.read_directory(*many, 0, [&](std::string_view name, Nid, FileType, std::uint64_t position) {
    names.emplace_back(name);
    positions.push_back(position);
    return true;
  });
  ASSERT_EQ(names.size(), kMany + 2);
  // As a readdir with small buffers does it.
  std::vector<std::string> again;
  std::uint64_t from = 0;
  for (bool more = true; more;) {
    more = false;
    int taken = 0;
    reader_.read_directory(*many, from, [&](std::string_view name, Nid, FileType, std::uint64_t position) {
      if (taken++ == 17) return !(more = true);
      again.emplace_back(name);
      from = position + 1;
      return true;
    });
  }
  EXPECT_EQ(again, names);
  EXPECT_TRUE(std::ranges::is_sorted(positions));
  reader_.read_directory(*many, positions.back() + 1,
                         [](std::string_view, Nid, FileType, std::uint64_t) -> bool { throw Error("past the end"); });
}

TEST_F(ErofsMalformedTest, MapsContentToTheLayers) {
  layers_.fill(tree_);
  auto files = layers_.files();
  ASSERT_NE(image_.ranges.bytes, 0u);
  EXPECT_EQ(reader_.device_tag(4), "ranges");
  EXPECT_EQ(reader_.device_tag(1), layers_.tags()[0]);
  files.push_back(layers_.make_ranges_file(image_.ranges));
  ASSERT_EQ(reader_.device_count(), files.size());
  for (const char* directory : {"content", "sparse"}) {
    for (const auto& [name, inode] : find(tree_, directory)->children) {
      const auto nid = reader_.resolve(std::string(directory) + "/" + name, true);
      ASSERT_TRUE(nid) << name;
      const auto runs = reader_.runs(*nid);
      for (const auto& place : test::places_to_compare(*inode)) {
        std::string content(place.length, '\0');
        for (const auto& run : runs) {
          const auto begin = std::max(place.offset, run.file_offset);
          const auto end = std::min(place.end(), run.file_offset + run.length);
          if (begin >= end) continue;
          const auto fd = open_file(files.at(run.device - 1), O_RDONLY);
          pread_exactly(fd.get(), run.device_offset + (begin - run.file_offset),
                        std::as_writable_bytes(std::span(content).subspan(begin - place.offset, end - begin)), name);
        }
        ASSERT_EQ(content, layers_.expected(*inode, place.offset, place.length)) << name << " at " << place.offset;
      }
    }
  }
}

TEST_F(ErofsMalformedTest, GivesTheSameBytesForTheSameTree) {
  const auto again = write_erofs(test::malformed_tree(kMany), layers_.tags(), layers_.stream_bytes());
  EXPECT_EQ(again.bytes, image_.bytes);
  EXPECT_EQ(again.ranges.encode(), image_.ranges.encode());
}

TEST_F(ErofsMalformedTest, CheckOfABrokenTreeEndsWithoutHarm) {
  std::uint64_t random = 1;
  int refused = 0;
  for (int round = 0; round < 100; ++round) {
    auto broken = image_.bytes;
    for (int flips = 0; flips < 8; ++flips) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      // Mostly at the front, where inodes are.
      broken[1152 + (random >> 20) % (round % 2 == 0 ? 100'000 : broken.size() - 1152)] ^=
          std::byte(1 << (random >> 60) % 8);
    }
    const auto uuid = erofs::content_uuid(broken);
    std::ranges::copy(uuid, broken.begin() + erofs::kSuperOffset + erofs::super::kUuidAt);
    store_le(broken.data() + erofs::kSuperOffset + 4, erofs::super_checksum(broken));
    try {
      const ErofsReader reader(broken, "broken");
      reader.check();
    } catch (const CorruptData&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

class ErofsResolveTest : public testing::Test {
 protected:
  void SetUp() override {
    tree_.layers = 1;
    put(tree_, "usr/bin/python3.11", make_file(10, {{0, {0, 512, 10}}}));
    put(tree_, "usr/bin/python3", make_symlink("python3.11"));
    put(tree_, "bin", make_symlink("usr/bin"));
    put(tree_, "usr/lib/up", make_symlink("../../bin/python3"));
    put(tree_, "etc/absolute", make_symlink("/usr/bin/python3"));
    put(tree_, "etc/above-root", make_symlink("../../../../usr/bin/python3"));
    put(tree_, "loop", make_symlink("loop2"));
    put(tree_, "loop2", make_symlink("loop"));
    put(tree_, "slash", make_symlink("/"));
    put(tree_, "growing", make_symlink("growing/" + std::string(4000, 'x')));
    image_ = write_erofs(tree_, {"aa"}, {4096}).bytes;
    reader_.emplace(image_, "tree");
    python_ = *reader_->resolve("usr/bin/python3.11", false);
  }
  Tree tree_;
  Bytes image_;
  std::optional<ErofsReader> reader_;
  Nid python_ = 0;
};

TEST_F(ErofsResolveTest, FollowsSymlinksInsideTheRoot) {
  for (const char* path :
       {"usr/bin/python3.11", "/usr/bin/python3.11", "//usr/./bin/../bin//python3.11", "bin/python3", "usr/lib/up",
        "etc/absolute", "etc/above-root", "../../usr/bin/python3", "slash/slash/bin/python3"})
    EXPECT_EQ(reader_->resolve(path, true), python_) << path;
  EXPECT_EQ(reader_->resolve("", true), reader_->root());
  EXPECT_EQ(reader_->resolve("/", false), reader_->root());
  EXPECT_EQ(reader_->resolve("slash", true), reader_->root());
}

TEST_F(ErofsResolveTest, LeavesTheLastSymlinkIfAsked) {
  const auto link = reader_->resolve("bin/python3", false);
  ASSERT_TRUE(link);
  EXPECT_EQ(reader_->symlink_target(*link), "python3.11");
  EXPECT_EQ(reader_->inode(*reader_->resolve("bin", false)).type, FileType::kSymlink);
  EXPECT_EQ(reader_->inode(*reader_->resolve("bin/", false)).type, FileType::kDirectory);
}

TEST_F(ErofsResolveTest, IsAbsentForWhatIsNotThere) {
  for (const char* path :
       {"nothing", "usr/nothing/x", "usr/bin/python3/x", "usr/bin/python3.11/..", "loop", "loop/x", "growing"})
    EXPECT_EQ(reader_->resolve(path, true), std::nullopt) << path;
}

TEST(ErofsWriterTest, RefusesWhatATreeCannotHold) {
  const auto write = [](const std::string& path, std::shared_ptr<TreeInode> inode) {
    Tree tree;
    tree.layers = 1;
    put(tree, path, std::move(inode));
    return write_erofs(tree, {"aa"}, {1'000'000});
  };
  EXPECT_NO_THROW(write("a", make_file(10, {{0, {0, 512, 10}}})));
  EXPECT_THROW(write(std::string(256, 'a'), make_directory()), CorruptData);
  EXPECT_THROW(write("..", make_directory()), CorruptData);
  EXPECT_THROW(write("a", make_symlink("")), CorruptData);
  EXPECT_THROW(write("a", make_symlink(std::string(4096, 't'))), CorruptData);
  EXPECT_THROW(write("a", make_file(10, {{1, {0, 512, 10}}})), CorruptData);
  EXPECT_THROW(write("a", make_file(10, {{0, {0, 1'000'000, 10}}})), CorruptData);
  EXPECT_THROW(write("a", make_file(10, {{0, {0, 512, 11}}})), CorruptData);
  EXPECT_THROW(write("a", make_file(20, {{0, {0, 512, 11}}, {0, {10, 1024, 10}}})), CorruptData);
  auto file = make_file(0, {});
  file->xattrs["user.large"] = std::string(65'536, 'x');
  try {
    write("some/file", file);
    FAIL() << "written";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("/some/file"), std::string::npos) << error.what();
  }
  file->xattrs.clear();
  for (int i = 0; i < 6; ++i) file->xattrs["user." + std::to_string(i)] = std::string(50'000, char('a' + i));
  EXPECT_THROW(write("a", file), Unsupported);
  file->xattrs.clear();
  file->type = FileType::kCharDevice;
  file->device_major = 4096;
  EXPECT_THROW(write("a", file), Unsupported);
  Tree tree;
  tree.layers = 1;
  EXPECT_THROW(write_erofs(tree, {"aa"}, {1ull << 42}), Unsupported);
}

TEST(ErofsWriterTest, LeavesOutAttributesThatNoLinuxFileCanCarry) {
  Tree tree;
  tree.layers = 0;
  tree.root->xattrs = {{"com.apple.provenance", "x"}, {"system.nfs4_acl", "y"}, {"user.kept", "z"}};
  const auto image = write_erofs(tree, {}, {});
  const ErofsReader reader(image.bytes, "tree");
  EXPECT_EQ(reader.xattrs(reader.root()), (std::map<std::string, std::string>{{"user.kept", "z"}}));
  EXPECT_EQ(reader.device_count(), 0u);
}

TEST(ErofsWriterTest, StoresSharedAttributesOnce) {
  Tree tree;
  tree.layers = 0;
  const std::string label(400, 'l');
  for (int i = 0; i < 1000; ++i) {
    auto file = make_file(0, {});
    file->xattrs["security.selinux"] = label;
    put(tree, std::to_string(i), file);
  }
  const auto image = write_erofs(tree, {}, {});
  EXPECT_LT(image.bytes.size(), 1000 * 130u);
  EXPECT_NO_THROW(ErofsReader(image.bytes, "tree").check());
}

TEST(ErofsReaderTest, RefusesWhatIsNoTreeOfOurs) {
  Tree tree;
  tree.layers = 1;
  put(tree, "a", make_directory());
  const auto image = write_erofs(tree, {"aa"}, {4096}).bytes;
  const auto refused = [&](std::size_t at, std::byte value) {
    auto broken = image;
    broken[at] = value;
    store_le(broken.data() + erofs::kSuperOffset + 4, erofs::super_checksum(broken));
    EXPECT_THROW(ErofsReader(broken, "broken").check(), CorruptData) << at;
  };
  using namespace erofs;
  refused(kSuperOffset, std::byte(0));
  refused(kSuperOffset + super::kBlockBitsAt, std::byte(12));
  refused(kSuperOffset + super::kIncompatAt, std::byte(0xff));
  refused(kSuperOffset + super::kMetaBlockAt, std::byte(1));
  refused(kSuperOffset + super::kBlocksAt, std::byte(9));
  refused(kSuperOffset + super::kRootNidAt, std::byte(0));
  refused(kSuperOffset + super::kExtraDevicesAt + 1, std::byte(0xff));
  refused(kSuperOffset + super::kDeviceTableAt + 1, std::byte(0xff));
  refused(kSuperOffset + super::kInosAt, std::byte(3));
  refused(image.size() - 1, std::byte(1));  // the UUID
  auto flipped = image;
  flipped[kSuperOffset + super::kUuidAt] ^= std::byte(1);
  EXPECT_THROW(ErofsReader(flipped, "broken"), CorruptData);  // the checksum
  EXPECT_THROW(ErofsReader(ByteView(image).first(image.size() - 512), "broken").check(), CorruptData);
  EXPECT_THROW(ErofsReader(ByteView(image).first(100), "broken"), CorruptData);
}

TEST(RangesDeviceTest, ComesBackAsItWasWritten) {
  const RangesDevice ranges{.bytes = 1 << 20,
                            .ranges = {{0, 3, 1ull << 40, 17}, {4096, 0, 5, 100}, {4196, 0, 105, 1000}}};
  const auto bytes = ranges.encode();
  const auto back = RangesDevice::decode(bytes, "ranges");
  EXPECT_EQ(back.bytes, ranges.bytes);
  EXPECT_EQ(back.ranges, ranges.ranges);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(RangesDevice::decode(ByteView(bytes).first(length), "ranges"), CorruptData);
  EXPECT_THROW((RangesDevice{.bytes = 512, .ranges = {{0, 0, 0, 513}}}).encode(), CorruptData);
  EXPECT_THROW((RangesDevice{.bytes = 512, .ranges = {{0, 0, 0, 10}, {9, 0, 0, 10}}}).encode(), CorruptData);
  EXPECT_THROW((RangesDevice{.bytes = 100, .ranges = {}}).encode(), CorruptData);
}

}  // namespace
}  // namespace varve::index
