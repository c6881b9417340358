#include "core/base/text/units.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(HumanBytesTest, UsesDecimalUnitsWithThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(1'048'575), "1.05 MB");
  EXPECT_EQ(human_bytes(15'300'000), "15.3 MB");
  EXPECT_EQ(human_bytes(999'990'000), "1.00 GB");
  EXPECT_EQ(human_bytes(4'915'900'000), "4.92 GB");
  EXPECT_EQ(human_bytes(~0ull), "18.4 EB");
}

}  // namespace
}  // namespace varve
