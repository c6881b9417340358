#include "cli/base/text.h"

#include <gtest/gtest.h>

#include <sstream>

namespace varve::cli {
namespace {

TEST(PrintTableTest, AlignsNumbersRightAndWordsLeft) {
  std::ostringstream out;
  print_table(out, {{"NAME", "BYTES"}, {"a", "5 B"}, {"longer", "1234 B"}});
  EXPECT_EQ(out.str(),
            "NAME     BYTES\n"
            "a          5 B\n"
            "longer  1234 B\n");
}

TEST(HumanSecondsTest, TellsTheTwoLargestParts) {
  EXPECT_EQ(human_seconds(-1), "0 s");
  EXPECT_EQ(human_seconds(8.9), "8 s");
  EXPECT_EQ(human_seconds(185), "3 min");
  EXPECT_EQ(human_seconds(2 * 3'600 + 5 * 60 + 59), "2 h 5 min");
  EXPECT_EQ(human_seconds(3 * 86'400 + 4 * 3'600), "3 d 4 h");
}

}  // namespace
}  // namespace varve::cli
