#include "fuse/daemon/image_table.h"

#include <gtest/gtest.h>

#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

std::unique_ptr<ImageMount> mount_at(const std::filesystem::path& dir) {
  auto mount = std::make_unique<ImageMount>();
  mount->dir = dir;
  return mount;
}

TEST(ImageTable, FindsAMountByItsFolderUntilItIsRemoved) {
  ImageTable images;
  auto& first = images.add(mount_at("/run/a"));
  auto& second = images.add(mount_at("/run/b"));
  second.why = "it was asked for";
  EXPECT_EQ(images.find("/run/a"), &first);
  EXPECT_EQ(images.find("/run/c"), nullptr);
  EXPECT_EQ(images.find_if([](const ImageMount& mount) { return !mount.why.empty(); }), &second);
  EXPECT_EQ(images.remove("/run/a").get(), &first);
  EXPECT_EQ(images.find("/run/a"), nullptr);
  EXPECT_EQ(images.remove("/run/a"), nullptr);
  EXPECT_EQ(images.find("/run/b"), &second) << "it stays where it is";
  EXPECT_EQ(images.remove_all().size(), 1u);
  EXPECT_EQ(images.find_if([](const ImageMount&) { return true; }), nullptr);
}

TEST(ImageTable, NobodyFindsAMountThatEndsButItsFolderIsTaken) {
  ImageTable images;
  auto& first = images.add(mount_at("/run/a"));
  EXPECT_EQ(images.begin_to_end("/run/a"), &first);
  EXPECT_EQ(images.begin_to_end("/run/a"), nullptr) << "once";
  EXPECT_EQ(images.find("/run/a"), nullptr);
  EXPECT_EQ(images.remove("/run/a"), nullptr);
  EXPECT_TRUE(images.remove_all().empty()) << "whoever ends it has it";
  EXPECT_TRUE(images.is_taken("/run/a"));
  EXPECT_FALSE(images.is_taken("/run/b"));
  EXPECT_EQ(images.remove_ending(first).get(), &first);
  EXPECT_FALSE(images.is_taken("/run/a"));
}

TEST(ImageTable, AMountHasANameAsLongAsAFolderShowsIt) {
  ImageTable images;
  images.add(mount_at("/run/a"));
  EXPECT_FALSE(images.has_name("/run/a"));
  images.set_name({.dir = "/home/one", .mount = "/run/a", .bound = true, .settled = false});
  images.set_name({.dir = "/home/two", .mount = "/run/a", .bound = true});
  images.set_name({.dir = "/home/one", .mount = "/run/a", .bound = true, .settled = true});
  ASSERT_TRUE(images.find_name("/home/one"));
  EXPECT_TRUE(images.find_name("/home/one")->settled);
  EXPECT_FALSE(images.find_name("/home/three"));
  EXPECT_EQ(images.names().size(), 2u);
  images.remove_name("/home/one");
  EXPECT_TRUE(images.has_name("/run/a"));
  EXPECT_FALSE(images.has_name("/run/b"));
  images.remove_name("/home/two");
  EXPECT_FALSE(images.has_name("/run/a"));
}

TEST(ImageTable, TheFoldersOfAMountGoWithItIfTheyAreFree) {
  const test::TempDir dir;
  for (const auto* name : {"free", "taken", "taken/by a user"}) std::filesystem::create_directory(dir / name);
  {
    ImageTable images;
    images.add(mount_at(dir / "free")).folders = {dir / "free", dir / "taken"};
    images.remove(dir / "free");
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "free"));
  EXPECT_TRUE(std::filesystem::exists(dir / "taken/by a user"));
}

}  // namespace
}  // namespace varve::fuse
