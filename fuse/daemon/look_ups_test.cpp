#include "fuse/daemon/look_ups.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};

ImageSpec image_named(const std::string& reference) { return {.reference = reference, .platform = {}, .registry = {}}; }

TEST(LookUps, WhoWaitedLongEnoughFindsLaterWhatWentOn) {
  std::latch open(1);
  std::atomic<int> begun = 0;
  LookUps look_ups([&](const ImageSpec& image) {
    ++begun;
    open.wait();
    return LookedUpImage{.image = {}, .reference = image.reference, .config_json = {}, .layers = {}};
  });
  EXPECT_THROW(look_ups.look_up(image_named("a"), milliseconds(0)), TemporaryError);
  EXPECT_FALSE(look_ups.wait_for_all(milliseconds(0)));
  EXPECT_THROW(look_ups.look_up(image_named("a"), milliseconds(0)), TemporaryError) << "joins";
  open.count_down();
  EXPECT_TRUE(look_ups.wait_for_all(kLong));
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(look_ups.look_up(image_named("a"), kLong).reference, "a");
  EXPECT_EQ(begun, 2) << "nothing is remembered here: the daemon keeps what it found";
}

TEST(LookUps, WhatFailsFailsForWhoAskedAndIsTriedAnew) {
  int tries = 0;
  LookUps look_ups([&](const ImageSpec&) -> LookedUpImage { fail<NotFound>("not there, {}", ++tries); });
  EXPECT_THROW(look_ups.look_up(image_named("a"), kLong), NotFound);
  EXPECT_TRUE(look_ups.wait_for_all(kLong));
  EXPECT_THROW(look_ups.look_up(image_named("a"), kLong), NotFound);
  EXPECT_TRUE(look_ups.wait_for_all(kLong));
  EXPECT_EQ(tries, 2);
}

TEST(LookUps, TooManyAtOnceAreRefused) {
  std::latch open(1);
  LookUps look_ups([&](const ImageSpec&) {
    open.wait();
    return LookedUpImage();
  });
  for (std::size_t i = 0; i < LookUps::kMaxUnderWay; ++i)
    EXPECT_THROW(look_ups.look_up(image_named(std::to_string(i)), milliseconds(0)), TemporaryError);
  try {
    look_ups.look_up(image_named("one more"), kLong);
    ADD_FAILURE() << "one more than may be under way";
  } catch (const TemporaryError& error) {
    EXPECT_NE(std::string(error.what()).find("64 other images"), std::string::npos) << error.what();
  }
  open.count_down();
}

}  // namespace
}  // namespace varve::fuse
