#include "core/index/merge/merge_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "core/base/errors.h"

namespace varve::index {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

LayerEntry layer_entry(FileType type, std::string path) {
  LayerEntry entry;
  entry.type = type;
  entry.path = std::move(path);
  entry.mode = 0644;
  return entry;
}

// A file is told by its size; its content lies where the size says.
LayerEntry file(std::string path, std::uint64_t size = 1) {
  auto entry = layer_entry(FileType::kRegular, std::move(path));
  entry.size = size;
  if (size != 0) entry.runs.push_back({.file_offset = 0, .stream_offset = size * 512, .length = size});
  return entry;
}

LayerEntry dir(std::string path, std::uint32_t mode = 0700) {
  auto entry = layer_entry(FileType::kDirectory, std::move(path));
  entry.mode = mode;
  return entry;
}

LayerEntry link(FileType type, std::string path, std::string target) {
  auto entry = layer_entry(type, std::move(path));
  entry.link_target = std::move(target);
  return entry;
}
LayerEntry symlink(std::string path, std::string target) {
  return link(FileType::kSymlink, std::move(path), std::move(target));
}
LayerEntry hard_link(std::string path, std::string target) {
  return link(FileType::kHardLink, std::move(path), std::move(target));
}

using Layer = std::vector<LayerEntry>;

Tree merge(std::initializer_list<Layer> layers) {
  LayerMerger merger;
  for (const auto& layer : layers) merger.add({.layer_digest = Digest(), .entries = layer});
  return merger.finish();
}

void list(const TreeInode& directory, const std::string& prefix, std::vector<std::string>& lines) {
  for (const auto& [name, inode] : directory.children) {
    const auto path = prefix + name;
    switch (inode->type) {
      case FileType::kDirectory:
        lines.push_back(path + '/');
        list(*inode, path + '/', lines);
        break;
      case FileType::kSymlink:
        lines.push_back(path + " -> " + inode->symlink_target);
        break;
      case FileType::kRegular:
        lines.push_back(path + ' ' + std::to_string(inode->size));
        break;
      default:
        lines.push_back(path + " type " + std::to_string(int(inode->type)));
    }
  }
}

std::vector<std::string> names(const Tree& tree) {
  std::vector<std::string> lines;
  list(*tree.root, "", lines);
  return lines;
}

using Lines = std::vector<std::string>;

const TreeInode& at(const Tree& tree, std::initializer_list<const char*> path) {
  const auto* inode = tree.root.get();
  for (const auto* name : path) inode = inode->children.at(name).get();
  return *inode;
}

TEST(LayerMergerTest, PutsLayersOnTopOfEachOther) {
  const auto tree = merge({{dir("a"), file("a/x", 1), file("a/y", 2)}, {file("a/y", 3), file("b", 4)}});
  EXPECT_EQ(names(tree), (Lines{"a/", "a/x 1", "a/y 3", "b 4"}));
  EXPECT_EQ(tree.layers, 2u);
  EXPECT_EQ(at(tree, {"a", "x"}).runs[0].layer, 0u);
  EXPECT_EQ(at(tree, {"a", "y"}).runs[0].layer, 1u);
  EXPECT_EQ(at(tree, {"a", "y"}).runs[0].run.stream_offset, 1536u);
}

TEST(LayerMergerTest, TakesTheRootsAttributesFromItsEntry) {
  auto root = dir("", 01777);
  root.uid = 7;
  const auto tree = merge({{root}});
  EXPECT_EQ(tree.root->mode, 01777u);
  EXPECT_EQ(tree.root->uid, 7u);
}

TEST(LayerMergerTest, RefusesARootThatIsNoDirectory) {
  EXPECT_THAT([] { merge({{file("")}}); }, ThrowsMessage<CorruptData>(HasSubstr("root")));
}

TEST(LayerMergerTest, MakesMissingParents) {
  const auto tree = merge({{file("a/b/c")}});
  EXPECT_EQ(names(tree), (Lines{"a/", "a/b/", "a/b/c 1"}));
  EXPECT_EQ(at(tree, {"a", "b"}).mode, 0755u);
  EXPECT_EQ(at(tree, {"a", "b"}).mtime_seconds, 0);
}

TEST(LayerMergerTest, AParentTheTarNamesLaterGetsItsAttributes) {
  EXPECT_EQ(at(merge({{file("a/b"), dir("a", 0711)}}), {"a"}).mode, 0711u);
}

TEST(LayerMergerTest, ADirectoryOverADirectoryReplacesAttributesAndKeepsChildren) {
  auto before = dir("a", 0700);
  before.xattrs["user.old"] = "1";
  const auto tree = merge({{before, file("a/x")}, {dir("a", 0750)}});
  EXPECT_EQ(names(tree), (Lines{"a/", "a/x 1"}));
  EXPECT_EQ(at(tree, {"a"}).mode, 0750u);
  EXPECT_TRUE(at(tree, {"a"}).xattrs.empty());
}

TEST(LayerMergerTest, AnythingElseReplacesWhatWasThere) {
  EXPECT_EQ(names(merge({{dir("a"), file("a/x")}, {file("a", 5)}})), (Lines{"a 5"}));
  EXPECT_EQ(names(merge({{file("a", 5)}, {dir("a")}})), (Lines{"a/"}));
  EXPECT_EQ(names(merge({{dir("a"), file("a/x")}, {symlink("a", "b")}})), (Lines{"a -> b"}));
  EXPECT_EQ(names(merge({{dir("b"), symlink("a", "b")}, {dir("a"), file("a/x")}})), (Lines{"a/", "a/x 1", "b/"}));
  EXPECT_EQ(names(merge({{file("a", 5)}, {file("a/x")}})), (Lines{"a/", "a/x 1"}))
      << "an implied parent replaces a file";
}

TEST(LayerMergerTest, TheLastOfSeveralEntriesCounts) {
  EXPECT_EQ(names(merge({{file("a", 1), file("a", 2)}})), (Lines{"a 2"}));
  EXPECT_EQ(names(merge({{dir("a"), file("a/x"), file("a", 2)}})), (Lines{"a 2"}));
  EXPECT_EQ(names(merge({{file("a", 2), dir("a"), file("a/x")}})), (Lines{"a/", "a/x 1"}));
}

TEST(LayerMergerTest, AWhiteoutHidesWhatLowerLayersGave) {
  EXPECT_EQ(names(merge({{file("a"), file("b")}, {file(".wh.a", 0)}})), (Lines{"b 1"}));
  EXPECT_EQ(names(merge({{dir("d"), file("d/x"), file("d/y")}, {file("d/.wh.x", 0)}})), (Lines{"d/", "d/y 1"}));
  EXPECT_EQ(names(merge({{dir("d"), file("d/x")}, {file(".wh.d", 0)}})), Lines{});
  EXPECT_EQ(names(merge({{file("a")}, {file(".wh.b", 0), file("x/y/.wh.z", 0)}})), (Lines{"a 1"}))
      << "nothing to hide, nothing made";
  EXPECT_EQ(names(merge({{file("a")}, {dir(".wh.a"), file(".wh.a/x")}})), Lines{})
      << "whatever its type, and nothing below it appears";
}

TEST(LayerMergerTest, AWhiteoutDoesNotHideWhatItsOwnLayerGivesInAnyOrder) {
  for (const auto& layer : {Layer{file(".wh.a", 0), file("a", 2)}, Layer{file("a", 2), file(".wh.a", 0)}})
    EXPECT_EQ(names(merge({{file("a", 1)}, layer})), (Lines{"a 2"}));
  for (const auto& layer :
       {Layer{file(".wh.d", 0), dir("d"), file("d/new", 2)}, Layer{dir("d"), file("d/new", 2), file(".wh.d", 0)}})
    EXPECT_EQ(names(merge({{dir("d"), file("d/old", 1)}, layer})), (Lines{"d/", "d/new 2"}));
}

TEST(LayerMergerTest, AnOpaqueDirectoryHidesItsLowerChildrenInAnyOrder) {
  const Layer lower{dir("d"), file("d/old", 1), dir("d/sub"), file("d/sub/deep", 1), file("other", 9)};
  for (const auto& layer : {Layer{dir("d"), file("d/.wh..wh..opq", 0), file("d/new", 2)},
                            Layer{file("d/new", 2), file("d/.wh..wh..opq", 0), dir("d")}})
    EXPECT_EQ(names(merge({lower, layer})), (Lines{"d/", "d/new 2", "other 9"}));
  EXPECT_EQ(names(merge({lower, {file(".wh..wh..opq", 0), file("x", 3)}})), (Lines{"x 3"}))
      << "the root may be opaque too";
}

TEST(LayerMergerTest, RefusesAWhiteoutOfNothing) {
  EXPECT_THAT([] { merge({{file("d/.wh.", 0)}}); }, ThrowsMessage<CorruptData>(HasSubstr("d/.wh.")));
  EXPECT_THROW(merge({{file(".wh...", 0)}}), CorruptData);
}

TEST(LayerMergerTest, AWhiteoutUnderASymlinkThatItsLayerReplacesSpeaksOfTheNewDirectory) {
  const Layer lower{dir("b"), file("b/x"), symlink("a", "b")};
  EXPECT_EQ(names(merge({lower, {dir("a"), file("a/.wh.x", 0)}})), (Lines{"a/", "b/", "b/x 1"}));
  EXPECT_EQ(names(merge({lower, {file("a/.wh.x", 0)}})), (Lines{"a -> b", "b/"})) << "else it is followed";
  const Layer deeper{dir("u"), dir("u/b"), file("u/b/x"), symlink("u/a", "b")};
  EXPECT_EQ(names(merge({deeper, {dir("u"), file("u/a/.wh.x", 0)}})), (Lines{"u/", "u/a -> b", "u/b/"}));
}

TEST(LayerMergerTest, AufsLeftoversDoNotAppear) {
  EXPECT_EQ(names(merge({{dir(".wh..wh.plnk"), file(".wh..wh.aufs", 0), file(".wh..wh.orph/x"), file("a")}})),
            (Lines{"a 1"}));
  EXPECT_EQ(names(merge({{file(".wh..wh.plnk/1.2", 8), hard_link("a", ".wh..wh.plnk/1.2")}})), (Lines{"a 8"}));
}

TEST(LayerMergerTest, ParentsThatAreSymlinksAreFollowedInsideTheRoot) {
  EXPECT_EQ(names(merge({{dir("usr"), dir("usr/lib"), symlink("lib", "usr/lib")}, {file("lib/x")}})),
            (Lines{"lib -> usr/lib", "usr/", "usr/lib/", "usr/lib/x 1"}));
  EXPECT_EQ(names(merge({{dir("t"), symlink("a", "/t")}, {file("a/x")}})), (Lines{"a -> /t", "t/", "t/x 1"}));
  EXPECT_EQ(names(merge({{dir("t"), symlink("a", "../../../t")}, {file("a/x")}})),
            (Lines{"a -> ../../../t", "t/", "t/x 1"}))
      << "never out of the root";
  EXPECT_EQ(names(merge({{symlink("a", "b/c")}, {file("a/x")}})), (Lines{"a -> b/c", "b/", "b/c/", "b/c/x 1"}))
      << "what dangles is made";
}

TEST(LayerMergerTest, RefusesSymlinksThatNeverEnd) {
  EXPECT_THAT(
      [] {
        merge({{symlink("a", "b"), symlink("b", "a"), file("a/x")}});
      },
      ThrowsMessage<CorruptData>(HasSubstr("symlinks")));
}

TEST(LayerMergerTest, AWhiteoutBehindSymlinksThatNeverEndHidesNothing) {
  EXPECT_EQ(names(merge({{symlink("b", "/b/c"), file("c")}, {file(".wh.b"), file("b/.wh.c")}})), (Lines{"c 1"}));
}

TEST(LayerMergerTest, RefusesDirectoriesDeeperThanAnyPath) {
  std::string deep = "d";
  for (int i = 0; i < 1500; ++i) deep += "/d";
  EXPECT_THROW(merge({{dir(deep), symlink("s", deep), file("s/" + deep + "/x")}}), CorruptData);
}

TEST(LayerMergerTest, HardLinksAreOneInode) {
  const auto tree = merge({{file("a", 3), hard_link("d/b", "a"), hard_link("c", "d/b")}});
  EXPECT_EQ(names(tree), (Lines{"a 3", "c 3", "d/", "d/b 3"}));
  EXPECT_EQ(&at(tree, {"a"}), &at(tree, {"d", "b"}));
  EXPECT_EQ(&at(tree, {"a"}), &at(tree, {"c"}));
}

TEST(LayerMergerTest, AHardLinkMayNameAFileOfALowerLayer) {
  const auto tree = merge({{file("a", 3)}, {hard_link("b", "a")}});
  EXPECT_EQ(&at(tree, {"a"}), &at(tree, {"b"}));
  EXPECT_EQ(names(merge({{file("a", 3)}, {hard_link("b", "a")}, {file(".wh.a", 0)}})), (Lines{"b 3"}))
      << "hiding one name leaves the others";
  EXPECT_EQ(names(merge({{file("a", 3)}, {hard_link("b", "a")}, {file("a", 4)}})), (Lines{"a 4", "b 3"}));
}

TEST(LayerMergerTest, AHardLinkGetsTheTargetOfItsTimeOrElseTheOneThatComes) {
  EXPECT_EQ(names(merge({{file("a", 1)}, {hard_link("b", "a"), file("a", 2)}})), (Lines{"a 2", "b 1"}));
  EXPECT_EQ(names(merge({{file("a", 1)}, {file("a", 2), hard_link("b", "a")}})), (Lines{"a 2", "b 2"}));
  EXPECT_EQ(names(merge({{hard_link("b", "a"), file("a", 2)}})), (Lines{"a 2", "b 2"}));
  EXPECT_EQ(names(merge({{hard_link("c", "b"), hard_link("b", "a"), file("a", 2)}})), (Lines{"a 2", "b 2", "c 2"}));
  EXPECT_EQ(names(merge({{hard_link("b", "a"), file("b", 7), file("a", 2)}})), (Lines{"a 2", "b 7"}))
      << "the last entry of a name counts";
}

TEST(LayerMergerTest, AHardLinkMayNameWhatItsLayerRemovesOrReplaceWhatItNames) {
  EXPECT_EQ(names(merge({{file("a", 1)}, {hard_link("b", "a"), file(".wh.a", 0)}})), (Lines{"b 1"}));
  EXPECT_EQ(names(merge({{dir("d"), file("d/a", 1)}, {file(".wh.d", 0), hard_link("b", "d/a")}})), (Lines{"b 1"}));
  EXPECT_EQ(names(merge({{file("a", 1)}, {hard_link("a", "a")}})), (Lines{"a 1"}));
  EXPECT_EQ(names(merge({{dir("d"), file("d/a", 1)}, {hard_link("d", "d/a")}})), (Lines{"d 1"}));
}

TEST(LayerMergerTest, AHardLinkToASymlinkIsTheSymlink) {
  EXPECT_EQ(names(merge({{symlink("a", "x"), hard_link("b", "a")}})), (Lines{"a -> x", "b -> x"}));
  EXPECT_EQ(names(merge({{dir("t"), file("t/f", 2), symlink("s", "t"), hard_link("b", "s/f")}})),
            (Lines{"b 2", "s -> t", "t/", "t/f 2"}))
      << "but a symlink on the way is followed";
}

TEST(LayerMergerTest, RefusesHardLinksThatLeadNowhere) {
  EXPECT_THAT([] { merge({{hard_link("b", "a")}}); }, ThrowsMessage<CorruptData>(HasSubstr("not in the image")));
  EXPECT_THAT(
      [] {
        merge({{hard_link("b", "a"), hard_link("a", "b")}});
      },
      ThrowsMessage<CorruptData>(HasSubstr("each other")));
  EXPECT_THAT([] { merge({{dir("d"), hard_link("b", "d")}}); }, ThrowsMessage<CorruptData>(HasSubstr("directory")));
  EXPECT_THAT([] { merge({{hard_link("b", "d"), dir("d")}}); }, ThrowsMessage<CorruptData>(HasSubstr("directory")));
}

TEST(LayerMergerTest, LongChainsOfLinksTakeLinearTime) {
  Layer layer;
  constexpr int kLinks = 100'000;
  for (int i = kLinks; i > 0; --i) layer.push_back(hard_link("l" + std::to_string(i), "l" + std::to_string(i - 1)));
  layer.push_back(file("l0", 5));
  const auto tree = merge({layer});
  EXPECT_EQ(tree.root->children.size(), kLinks + 1u);
  EXPECT_EQ(&at(tree, {"l0"}), tree.root->children.at("l" + std::to_string(kLinks)).get());
}

TEST(LayerMergerTest, RemembersNoDirectoryThatIsGone) {
  // The directory of the entry before is replaced under the same name in between.
  EXPECT_EQ(names(merge({{dir("a"), file("a/x"), symlink("a", "b"), dir("b"), file("a/y")}})),
            (Lines{"a -> b", "b/", "b/y 1"}));
}

TEST(LayerMergerTest, KeepsDevicesAndAttributes) {
  auto device = layer_entry(FileType::kCharDevice, "null");
  device.device_major = 1;
  device.device_minor = 3;
  device.mtime_seconds = -5;
  device.mtime_nanoseconds = 17;
  device.gid = 70'000;
  const auto tree = merge({{device, layer_entry(FileType::kFifo, "fifo")}});
  const auto& inode = at(tree, {"null"});
  EXPECT_EQ(inode.device_minor, 3u);
  EXPECT_EQ(inode.mtime_seconds, -5);
  EXPECT_EQ(inode.mtime_nanoseconds, 17u);
  EXPECT_EQ(inode.gid, 70'000u);
  EXPECT_EQ(at(tree, {"fifo"}).type, FileType::kFifo);
}

TEST(LayerMergerTest, Merges127Layers) {
  LayerMerger merger;
  for (int i = 0; i < 127; ++i)
    merger.add(
        {.layer_digest = Digest(), .entries = {file("same", std::uint64_t(i) + 1), file("f" + std::to_string(i))}});
  const auto tree = merger.finish();
  EXPECT_EQ(tree.layers, 127u);
  EXPECT_EQ(tree.root->children.size(), 128u);
  EXPECT_EQ(at(tree, {"same"}).runs[0].layer, 126u);
}

}  // namespace
}  // namespace varve::index
