#include "fuse/session/rootfs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/errors.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

class RootfsTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  std::string ensure(std::string_view path, bool folder = true) {
    return Rootfs::open(root_).ensure(path, {.folder = folder, .mode = 0755});
  }

  test::TempDir dir_;
  fs::path root_ = dir_ / "root";
};

TEST_F(RootfsTest, MakesWhatIsMissing) {
  EXPECT_EQ(ensure("/a/b/../c/./d/"), "/a/c/d");
  EXPECT_TRUE(fs::is_directory(root_ / "a/c/d"));
  EXPECT_EQ(ensure("etc/hosts", false), "/etc/hosts");
  EXPECT_TRUE(fs::is_regular_file(root_ / "etc/hosts"));
  EXPECT_EQ(ensure("/"), "/");
  EXPECT_EQ(ensure("/../../.."), "/");
}

TEST_F(RootfsTest, LeavesAloneWhatIsThere) {
  std::ofstream(root_ / "file") << "kept";
  EXPECT_EQ(ensure("/file"), "/file");
  EXPECT_EQ(fs::file_size(root_ / "file"), 4u);
  EXPECT_THROW(ensure("/file/below"), std::system_error);
}

TEST_F(RootfsTest, FollowsDanglingSymlinksInside) {
  fs::create_directories(root_ / "etc");
  fs::create_symlink("../run/systemd/resolve/stub-resolv.conf", root_ / "etc/resolv.conf");
  EXPECT_EQ(ensure("/etc/resolv.conf", false), "/run/systemd/resolve/stub-resolv.conf");
  EXPECT_TRUE(fs::is_regular_file(root_ / "run/systemd/resolve/stub-resolv.conf"));
  fs::create_symlink((dir_ / "outside").string(), root_ / "evil");
  EXPECT_EQ(ensure("/evil/below"), (dir_ / "outside/below").string());
  EXPECT_FALSE(fs::exists(dir_ / "outside"));
  EXPECT_TRUE(fs::is_directory(root_ / (dir_ / "outside/below").relative_path()));
}

TEST_F(RootfsTest, SymlinksUpwardsEndAtTheRoot) {
  fs::create_symlink("../../../../../../../../..", root_ / "up");
  EXPECT_EQ(ensure("/up/made-here"), "/made-here");
  EXPECT_TRUE(fs::is_directory(root_ / "made-here"));
}

TEST_F(RootfsTest, ALoopOfSymlinksIsAnErrorOfTheImage) {
  fs::create_symlink("b", root_ / "a");
  fs::create_symlink("a", root_ / "b");
  EXPECT_THROW(ensure("/a/c"), CorruptData);
  EXPECT_FALSE(Rootfs::open(root_).open_path("/a", O_PATH).has_value());
}

TEST_F(RootfsTest, OpensThroughSymlinksAsItsProcessesWould) {
  std::ofstream(dir_ / "host-secret") << "secret";
  fs::create_symlink((dir_ / "host-secret").string(), root_ / "link");
  EXPECT_FALSE(Rootfs::open(root_).open_path("/link", O_RDONLY).has_value());
  EXPECT_FALSE(Rootfs::open(root_).read_file("/link", 100).has_value());
  std::ofstream(root_ / "target") << "inside";
  fs::create_symlink("/target", root_ / "good");
  EXPECT_EQ(as_text(*Rootfs::open(root_).read_file("good", 100)), "inside");
}

TEST_F(RootfsTest, ListsAFolderThroughSymlinksAsItsProcessesWould) {
  fs::create_directories(root_ / "usr/lib/python3");
  std::ofstream(root_ / "usr/lib/.hidden") << "";
  fs::create_symlink("/usr/lib", root_ / "lib");
  fs::create_symlink("/", root_ / "usr/up");
  const auto rootfs = Rootfs::open(root_);
  auto folder = rootfs.list("usr/lib");
  ASSERT_TRUE(folder.has_value());
  std::sort(folder->names.begin(), folder->names.end());
  EXPECT_EQ(folder->names, (std::vector<std::string>{".hidden", "python3"}));
  EXPECT_EQ(rootfs.list("/lib")->inode, folder->inode) << "a link to a folder is that folder";
  EXPECT_EQ(rootfs.list("usr/up")->inode, rootfs.list("")->inode) << "and / is the root's own";
  EXPECT_TRUE(rootfs.list("lib/python3")->names.empty());
}

TEST_F(RootfsTest, WhatIsNoFolderIsNotListed) {
  std::ofstream(root_ / "file") << "";
  ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0644), 0);
  fs::create_symlink("nowhere", root_ / "dangling");
  for (const auto* path : {"file", "fifo", "dangling", "absent", "file/below"})
    EXPECT_FALSE(Rootfs::open(root_).list(path).has_value()) << path;
}

TEST_F(RootfsTest, IsAFolder) { EXPECT_THROW(Rootfs::open(dir_ / "none"), std::system_error); }

}  // namespace
}  // namespace varve::fuse
