#include "fuse/daemon/stale_mounts.h"

#include <gtest/gtest.h>

namespace varve::fuse {
namespace {

constexpr const char* kMounts =
    "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "40 22 0:51 / /srv/r/run/blobs ro,nosuid shared:9 - fuse.varve varve:/srv/r ro,user_id=0\n"
    "41 22 0:52 / /srv/r/run/images/ab ro - erofs /srv/r/trees/cd.erofs ro\n"
    "42 22 0:52 / /mnt/with\\040space ro - erofs /srv/r/trees/cd.erofs ro\n"
    "43 22 0:53 / /mnt/other ro - erofs /srv/r2/trees/cd.erofs ro\n"
    "44 22 0:54 / /home/u/m ro - fuse.varve varve:/srv/r ro\n"
    "45 22 0:55 / /home/u/o ro - fuse.varve varve:/srv/other ro\n"
    "46 22 0:56 / /srv/r/run/images/long ro - erofs /proc/self/fd/9 ro\n"
    "47 22 0:56 / /mnt/long ro - erofs /proc/self/fd/9 ro\n";

TEST(StaleMounts, AreThoseOfTheSameRootWithTheirBindsTopmostFirst) {
  const DaemonPaths paths{.root = "/srv/r", .run_dir = "/srv/r/run"};
  const auto stale = find_stale_mounts(parse_mount_table(kMounts), paths, {});
  const std::vector<std::filesystem::path> expected{"/mnt/long",       "/srv/r/run/images/long", "/home/u/m",
                                                    "/mnt/with space", "/srv/r/run/images/ab",   "/srv/r/run/blobs"};
  EXPECT_EQ(stale, expected);
}

TEST(StaleMounts, AFoldersOwnMountIsFoundBeneathOthers) {
  const DaemonPaths paths{.root = "/srv/r", .run_dir = "/srv/r/run"};
  const auto table = parse_mount_table(std::string(kMounts) + "60 44 0:70 / /home/u/m rw - tmpfs tmpfs rw\n");
  EXPECT_EQ(find_own_mount(table, paths, "/home/u/m").device, "0:54");
  EXPECT_EQ(find_own_mount(table, paths, "/srv/r/run/images/ab").device, "0:52");
  EXPECT_TRUE(find_own_mount(table, paths, "/home/u/o").dir.empty()) << "of another root";
  EXPECT_TRUE(find_own_mount(table, paths, "/home/u").dir.empty());
}

}  // namespace
}  // namespace varve::fuse
