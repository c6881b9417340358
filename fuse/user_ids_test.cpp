#include "fuse/user_ids.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace varve::fuse {
namespace {

TEST(Subid, TakesTheRangesOfTheUserByNameAndByNumber) {
  const auto ranges = parse_subid("eve:100000:65536\nmallory:200000:65536\n1000:300000:10\n", "eve", 1000);
  EXPECT_EQ(ranges, (std::vector<IdRange>{{1, 100000, 65536}, {65537, 300000, 10}}));
}

TEST(Subid, SkipsLinesThatCannotBeRight) {
  EXPECT_TRUE(parse_subid("eve\neve:\neve:1\neve:x:5\neve:5:y\neve:5:0\neve:0:5\neve:-1:5\neve:4294967295:2\n:1:1\neve:1:2:3\n", "eve", 7).empty());
}

TEST(Subid, AnEmptyUserNameMatchesNoLine) { EXPECT_TRUE(parse_subid(":100000:5\n", "", 7).empty()); }

TEST(Subid, TakesABoundedNumberOfRanges) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "eve:100000:1\n";
  EXPECT_EQ(parse_subid(text, "eve", 7).size(), kMaxSubidRanges);
}

TEST(IdMapTest, TheIdentityKeepsEveryId) {
  const IdMap map;
  EXPECT_EQ(map.outside(0), 0u);
  EXPECT_EQ(map.outside(4'000'000'000u), 4'000'000'000u);
  EXPECT_TRUE(map.maps(12345));
}

TEST(IdMapTest, IdsWithoutARangeBecomeTheUsersOwn) {
  const IdMap map({{0, 1000, 1}, {1, 100000, 100}}, 1000);
  EXPECT_EQ(map.outside(0), 1000u);
  EXPECT_EQ(map.outside(1), 100000u);
  EXPECT_EQ(map.outside(100), 100099u);
  EXPECT_EQ(map.outside(101), 1000u);
  EXPECT_FALSE(map.maps(101));
  EXPECT_EQ(map.to_map_file(), "0 1000 1\n1 100000 100\n");
}

TEST(FindProgram, LooksWhereAdministratorsProgramsLie) {
  EXPECT_EQ(find_program("no-such-program-anywhere"), "");
  EXPECT_TRUE(find_program("sh").is_absolute());
}

}  // namespace
}  // namespace varve::fuse
