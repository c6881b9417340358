#include "fuse/mount/user_ids.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

TEST(Subid, TakesTheRangesOfTheUserByNameAndByNumber) {
  const auto ranges = parse_subid("eve:100000:65536\nmallory:200000:65536\n1000:300000:10\n", "eve", 1000);
  EXPECT_EQ(ranges, (std::vector<IdRange>{{1, 100000, 65536}, {65537, 300000, 10}}));
}

TEST(Subid, AnEmptyUserNameMatchesNoLine) { EXPECT_TRUE(parse_subid(":100000:5\n", "", 7).empty()); }

TEST(Subid, TakesABoundedNumberOfRanges) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "eve:100000:1\n";
  EXPECT_EQ(parse_subid(text, "eve", 7).size(), kMaxSubidRanges);
}

constexpr IdRange kOtherwise{.inside = 0, .outside = 1'000'000, .count = 3 * kOwnIds};

TEST(IdPoolTest, TakesTheRangesOfItsOwnUserFirst) {
  const auto* text = "root:100000:65536\ncontainers:200000:131072\nvarve:600000:65536\n";
  EXPECT_EQ(IdPool::of_text(text, text, kOtherwise).uids.front().outside, 600'000u);
  EXPECT_EQ(IdPool::of_text("root:100000:65536\ncontainers:200000:131072\n", text, kOtherwise).gids.front().outside,
            200'000u);
}

TEST(IdPoolTest, RangesThatAreTooSmallOrOfOneKindOnlyAreNone) {
  EXPECT_EQ(IdPool::of_text("varve:100000:65535\n", "varve:100000:65536\n", kOtherwise).uids, std::vector{kOtherwise});
  EXPECT_EQ(IdPool::of_text("", "varve:100000:65536\n", kOtherwise).gids, std::vector{kOtherwise});
}

TEST(IdPoolTest, GivesEachSessionItsOwnBlockUntilNoneIsLeft) {
  const IdPool pool{.uids = {{.outside = 100'000, .count = kOwnIds + 5}, {.outside = 500'000, .count = 2 * kOwnIds}},
                    .gids = {kOtherwise}};
  std::vector<OwnIds> taken;
  for (int i = 0; i < 3; ++i) {
    const auto free = pool.find_free(taken);
    ASSERT_TRUE(free);
    taken.push_back(*free);
  }
  EXPECT_EQ(taken, (std::vector<OwnIds>{{100'000, 1'000'000}, {500'000, 1'065'536}, {565'536, 1'131'072}}));
  EXPECT_FALSE(pool.find_free(taken));
  taken.erase(taken.begin() + 1);
  EXPECT_EQ(pool.find_free(taken), (OwnIds{500'000, 1'065'536}));
}

TEST(IdPoolTest, ABlockThatOverlapsWithATakenOneIsNotGiven) {
  const IdPool pool{.uids = {kOtherwise}, .gids = {kOtherwise}};
  EXPECT_EQ(pool.find_free({{.first_uid = 1'000'001, .first_gid = 5}}), (OwnIds{1'131'072, 1'131'072}));
  EXPECT_EQ(pool.find_free({{.first_uid = 5, .first_gid = 1'000'000 - kOwnIds + 1}}), (OwnIds{1'065'536, 1'065'536}));
}

TEST(IdPoolTest, ReadsARange) {
  EXPECT_EQ(parse_id_range(kUsualOwnIds).outside, 1'879'048'192u);
  for (const auto* text :
       {"", "5", ":", "5:", "0:65536", "5:65535", "4294967295:65536", "5:65536:1", "-1:65536", "a:65536"})
    EXPECT_THROW(parse_id_range(text), UsageError) << text;
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
