#include "webhook/sender_limit.h"

#include <gtest/gtest.h>

#include "testing/manual_clock.h"

namespace varve::webhook {
namespace {

TEST(SenderLimitTest, EachSenderHasItsMinute) {
  test::ManualClock clock;
  SenderLimit limit(clock);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(limit.may_order("192.0.2.1", 3)) << i;
    limit.note_order("192.0.2.1");
    clock.advance(std::chrono::seconds(10));
  }
  EXPECT_FALSE(limit.may_order("192.0.2.1", 3));
  EXPECT_TRUE(limit.may_order("192.0.2.1", 4));
  EXPECT_TRUE(limit.may_order("192.0.2.2", 3)) << "what one did is not another's";
  limit.note_order("192.0.2.2");
  clock.advance(std::chrono::seconds(29));
  EXPECT_FALSE(limit.may_order("192.0.2.1", 3));
  clock.advance(std::chrono::seconds(1));
  EXPECT_TRUE(limit.may_order("192.0.2.1", 3));
  limit.note_order("192.0.2.1");
  EXPECT_FALSE(limit.may_order("192.0.2.1", 1)) << "a minute of its own again";
  EXPECT_FALSE(limit.may_order("192.0.2.2", 1)) << "whose minute goes on";
}

}  // namespace
}  // namespace varve::webhook
