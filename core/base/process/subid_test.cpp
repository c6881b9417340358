#include "core/base/process/subid.h"

#include <gtest/gtest.h>

#include <vector>

namespace varve {
namespace {

TEST(Subid, SkipsLinesThatCannotBeRight) {
  each_subid("eve\neve:\neve:1\neve:x:5\neve:5:y\neve:5:0\neve:0:5\neve:-1:5\neve:4294967295:2\n:1:1\neve:1:2:3\n",
             [](const SubidRange& range) {
               ADD_FAILURE() << range.owner << range.first;
               return true;
             });
}

TEST(Subid, EndsWhereNoMoreIsWanted) {
  std::vector<std::uint32_t> firsts;
  each_subid("eve:100:1\n7:200:5\nlast:300:5", [&](const SubidRange& range) {
    firsts.push_back(range.first);
    return firsts.size() < 2;
  });
  EXPECT_EQ(firsts, (std::vector<std::uint32_t>{100, 200}));
}

// Who has 65,536 ids could else be as many people.
TEST(Subid, IdsThatAUserMayGiveAwayAreHisOwn) {
  constexpr auto* kRanges = "daemon:100000:65536\n4711:200000:10\nnobody-has-this-name:300000:10\n";
  EXPECT_EQ(user_behind(100'000, kRanges), 1u) << "by name";
  EXPECT_EQ(user_behind(165'535, kRanges), 1u);
  EXPECT_EQ(user_behind(165'536, kRanges), 165'536u);
  EXPECT_EQ(user_behind(200'009, kRanges), 4711u) << "by number";
  EXPECT_EQ(user_behind(300'005, kRanges), 300'000u);
  EXPECT_EQ(user_behind(1, kRanges), 1u);
  EXPECT_EQ(user_behind(0, kRanges), 0u);
}

TEST(Subid, IdsOfRootsSessionsAreNotRoots) {
  EXPECT_EQ(user_behind(100'007, "root:100000:65536\n"), 100'000u);
  EXPECT_EQ(user_behind(100'007, "0:100000:65536\n"), 100'000u);
}

}  // namespace
}  // namespace varve
