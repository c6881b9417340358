#include "fuse/mount/mount_table.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace varve::fuse {
namespace {

constexpr const char* kTable =
    "22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    "40 22 0:51 / /srv/r/run/blobs ro,nosuid shared:9 - fuse.varve varve:/srv/r ro,user_id=0\n"
    "41 22 0:52 / /srv/r/run/images/ab ro - erofs /srv/r/trees/cd.erofs ro\n"
    "42 22 0:52 / /mnt/with\\040space ro - erofs /srv/r/trees/cd.erofs ro\n"
    "not a line of this kind\n";

TEST(MountTable, ReadsFoldersTypesAndSources) {
  const auto table = parse_mount_table(kTable);
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table[0].device, "253:0");
  EXPECT_EQ(table[0].type, "ext4");
  EXPECT_EQ(table[1].source, "varve:/srv/r");
  EXPECT_EQ(table[3].dir, "/mnt/with space");
}

TEST(MountTable, TellsWhatLiesOnTopFromWhatIsBeneath) {
  const auto table = parse_mount_table(std::string(kTable) + "50 42 0:60 / /mnt/with\\040space rw - tmpfs tmpfs rw\n");
  const auto ours = table[3];
  ASSERT_NE(topmost_at(table, "/mnt/with space"), nullptr);
  EXPECT_EQ(topmost_at(table, "/mnt/with space")->type, "tmpfs");
  EXPECT_EQ(topmost_at(table, "/mnt"), nullptr);
  EXPECT_TRUE(is_mounted_at(table, "/mnt/with space", ours));
  EXPECT_TRUE(is_mounted_at(table, "/srv/r/run/images/ab", ours));
  auto other = ours;  // the number of a file system that has gone is given to another one
  other.source = "/srv/r/trees/ef.erofs";
  EXPECT_FALSE(is_mounted_at(table, "/mnt/with space", other));
  EXPECT_FALSE(is_mounted_at(table, "/mnt", ours));
}

TEST(MountTable, ReadsTheLowerLayersOfOverlays) {
  const auto overlays = parse_overlays(std::string(kTable) +
                                       "60 22 0:70 / /c/one rw shared:4 - overlay overlay "
                                       "rw,lowerdir=/s/l/AB:/s/with\\040space:/s/a\\134:b,upperdir=/u,workdir=/w\n"
                                       "61 22 0:71 / /c/two rw - overlay none ro,lowerdir+=/s/x,lowerdir+=/s/a\\134,b\n"
                                       "62 22 0:72 / /c/three rw - overlay overlay rw\n");
  ASSERT_EQ(overlays.size(), 3u);
  EXPECT_EQ(overlays[0].dir, "/c/one");
  EXPECT_EQ(overlays[0].lower, (std::vector<std::filesystem::path>{"/s/l/AB", "/s/with space", "/s/a:b"}));
  EXPECT_EQ(overlays[1].lower, (std::vector<std::filesystem::path>{"/s/x", "/s/a,b"}));
  EXPECT_TRUE(overlays[2].lower.empty());
}

TEST(MountTable, ShowsTheMountsOfThisMachine) {
  const auto table = read_mount_table();
  const auto root = std::ranges::find(table, std::filesystem::path("/"), &MountEntry::dir);
  ASSERT_NE(root, table.end());
  EXPECT_FALSE(root->type.empty());
}

}  // namespace
}  // namespace varve::fuse
