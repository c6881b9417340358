#include "fuse/stream/attempts.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::fuse {
namespace {

using std::chrono::milliseconds;

std::exception_ptr corrupt() { return std::make_exception_ptr(CorruptData("bad digest")); }
std::exception_ptr passing() { return std::make_exception_ptr(TemporaryError("away")); }
std::exception_ptr refused() { return std::make_exception_ptr(NotFound("no such blob")); }

TEST(Attempts, WrongBytesAreTriedOnceMoreAndAtEverySource) {
  Attempts one;
  EXPECT_EQ(one.after(corrupt(), 1, true), milliseconds(0));
  EXPECT_EQ(one.after(corrupt(), 1, true), std::nullopt);
  Attempts three(2);
  EXPECT_EQ(three.after(corrupt(), 3, false), milliseconds(0));
  EXPECT_EQ(three.source(), 3u);  // the next, counted round
  EXPECT_EQ(three.after(corrupt(), 3, false), milliseconds(0));
  EXPECT_EQ(three.after(corrupt(), 3, false), std::nullopt);
}

TEST(Attempts, WrongBytesAreTriedForEachCopyThatASourceMayHave) {
  Attempts mirrored;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(mirrored.after(corrupt(), 1, true, 4), milliseconds(0));
  EXPECT_EQ(mirrored.after(corrupt(), 1, true, 4), std::nullopt);
}

TEST(Attempts, ARefusalIsFinalForItsSource) {
  Attempts one;
  EXPECT_EQ(one.after(refused(), 1, true), std::nullopt);
  Attempts two;
  EXPECT_EQ(two.after(refused(), 2, true), milliseconds(0));
  EXPECT_EQ(two.after(refused(), 2, true), std::nullopt);
  EXPECT_EQ(Attempts().after(refused(), 0, true), std::nullopt);
}

TEST(Attempts, WhatMayPassIsTriedWhileSomebodyWaitsWithGrowingPauses) {
  Attempts attempts;
  EXPECT_EQ(Attempts().after(passing(), 1, false), std::nullopt);
  auto longest = milliseconds(0);
  for (int i = 0; i < 40; ++i) {
    const auto delay = attempts.after(passing(), 1, true);
    ASSERT_TRUE(delay);
    EXPECT_GE(*delay, milliseconds(50));
    EXPECT_LE(*delay, milliseconds(5'000));
    longest = std::max(longest, *delay);
  }
  EXPECT_GE(longest, milliseconds(2'500));
}

TEST(Attempts, AsksTheOtherSourcesBeforeItPauses) {
  Attempts attempts;
  EXPECT_EQ(attempts.after(passing(), 2, true), milliseconds(0));
  EXPECT_GE(attempts.after(passing(), 2, true), milliseconds(50));
  EXPECT_EQ(attempts.after(passing(), 2, true), milliseconds(0));
}

TEST(Attempts, ContextKeepsTheKindOfAnError) {
  EXPECT_THROW(std::rethrow_exception(with_context("here", corrupt())), CorruptData);
  EXPECT_THROW(std::rethrow_exception(with_context("here", passing())), TemporaryError);
  EXPECT_THROW(std::rethrow_exception(with_context("here", refused())), NotFound);
  EXPECT_EQ(message_of(with_context("here", refused())), "here: no such blob");
}

}  // namespace
}  // namespace varve::fuse
