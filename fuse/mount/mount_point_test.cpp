#include "fuse/mount/mount_point.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <fstream>

#include "core/base/errors.h"
#include "fuse/mount/fuse_mount.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

class MountPointTest : public ::testing::Test {
 protected:
  MountPointTest() {
    for (const auto* folder : {"source", "user/m", "elsewhere/m"}) fs::create_directories(dir_ / folder);
    std::ofstream(dir_ / "source/file") << "x";
  }
  void SetUp() override {
    if (!may_mount()) GTEST_SKIP() << "mounts need root";
  }
  void TearDown() override {
    for (const auto* folder : {"user/m", "moved/m", "elsewhere/m"})
      ::umount2((dir_ / folder).c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  }

  test::TempDir dir_;
};

TEST_F(MountPointTest, ShowsWhatIsMountedElsewhere) {
  const MountPoint place(dir_ / "user/m");
  place.bind(dir_ / "source");
  EXPECT_TRUE(fs::exists(dir_ / "user/m/file"));
}

TEST_F(MountPointTest, WhatIsNoEmptyFolderIsRefused) {
  EXPECT_THROW(MountPoint(dir_ / "source/file"), UsageError);
  EXPECT_THROW(MountPoint(dir_ / "source"), UsageError);
  EXPECT_THROW(MountPoint(dir_ / "nowhere"), UsageError);
}

// The image may take minutes to open; its user has time to turn the mount to a folder that is not his.
TEST_F(MountPointTest, ALinkThatTakesThePlaceOfAFolderTurnsNoMountElsewhere) {
  const MountPoint place(dir_ / "user/m");
  fs::rename(dir_ / "user", dir_ / "moved");
  fs::create_directory_symlink(dir_ / "elsewhere", dir_ / "user");
  EXPECT_THROW(place.bind(dir_ / "source"), UsageError);
  EXPECT_FALSE(fs::exists(dir_ / "elsewhere/m/file"));
  EXPECT_FALSE(fs::exists(dir_ / "moved/m/file"));
  EXPECT_THROW(MountPoint(dir_ / "user/m"), UsageError);
}

}  // namespace
}  // namespace varve::fuse
