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

}  // namespace
}  // namespace varve::cli
