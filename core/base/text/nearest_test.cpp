#include "core/base/text/nearest.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

using Names = std::vector<std::string>;

TEST(Nearest, CountsLettersChangedLeftOutAndPutIn) {
  EXPECT_EQ(edit_distance("index", "index"), 0u);
  EXPECT_EQ(edit_distance("indx", "index"), 1u);
  EXPECT_EQ(edit_distance("", "index"), 5u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Nearest, NamesWhatIsNearOrHoldsTheNameAndNothingElse) {
  EXPECT_EQ(nearest_names("indx", {"inspect", "index", "run"}), Names{"index"});
  EXPECT_EQ(nearest_names("store", {"store-size", "root"}), Names{"store-size"});
  EXPECT_EQ(nearest_names("numpi", {"numpy", "numba", "numpy"}, 1), Names{"numpy"});
  EXPECT_EQ(nearest_names("frobnicate", {"run", "ls"}), Names{});
  EXPECT_EQ(nearest_names("", {"run"}), Names{});
}

TEST(Nearest, EndsAMessage) {
  EXPECT_EQ(did_you_mean("indx", {"index"}), "; did you mean index");
  EXPECT_EQ(did_you_mean("xyzzy", {"index"}), "");
}

}  // namespace
}  // namespace varve
