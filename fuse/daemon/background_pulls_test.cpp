#include "fuse/daemon/background_pulls.h"

#include <gtest/gtest.h>

#include "core/base/files/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

class BackgroundPullsTest : public ::testing::Test {
 protected:
  BackgroundPullsTest() {
    write_file_atomically(dir_ / "layer", {});
    stream_ = std::make_shared<test::FakeLayerStream>(dir_ / "layer", 4 << 20);
    stream_->hold();
  }
  void start(const char* index, bool cold) {
    pulls_.start({.index = digest_of(index), .cold = cold}, {.image = digest_of("image"), .reference = "r.example/a:1"},
                 {{stream_, {}}});
  }
  void start_fill(const char* index) {
    pulls_.start_fill({.index = digest_of(index), .cold = false},
                      {.image = digest_of("image"), .reference = "r.example/a:1"}, {{stream_, {}}},
                      [] { return false; });
  }
  void wait_until_idle() {
    while (!pulls_.idle()) std::this_thread::yield();
  }

  test::TempDir dir_;
  std::shared_ptr<test::FakeLayerStream> stream_;
  BackgroundPulls pulls_;
};

TEST_F(BackgroundPullsTest, WhatIsUnderWayGoesOnAndWhatHasEndedBeginsAnew) {
  EXPECT_TRUE(pulls_.idle());
  start("one", false);
  start("one", false);
  stream_->wait_for_wishes(1);
  EXPECT_FALSE(pulls_.idle());
  start("one", true);
  start("other", false);
  stream_->wait_for_wishes(3);
  stream_->arrive();
  wait_until_idle();
  EXPECT_EQ(stream_->wishes(), 3u);
  start("one", false);
  wait_until_idle();
  EXPECT_EQ(stream_->wishes(), 4u);
}

TEST_F(BackgroundPullsTest, WhatSomebodyWaitsForIsListedAsLongAsItGoesOn) {
  Progress progress;
  CancelFlag cancel;
  std::string failure;
  std::jthread waiting([&] {
    try {
      pulls_.run({.index = digest_of("one"), .cold = false},
                 {.image = digest_of("image"), .reference = "r.example/a:1"}, {{stream_, {}}}, {progress, cancel});
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  stream_->wait_for_wishes(1);
  ASSERT_EQ(pulls_.list().size(), 1u);
  EXPECT_EQ(pulls_.list()[0].reference, "r.example/a:1");
  EXPECT_EQ(pulls_.list()[0].total_bytes, 4u << 20);
  stream_->fail_all("the registry is away");
  waiting.join();
  EXPECT_EQ(failure, "the registry is away");
  EXPECT_TRUE(pulls_.list().empty()) << "who waited was told";
}

TEST_F(BackgroundPullsTest, AFailureEndsThePullAndNothingElse) {
  start("one", false);
  stream_->wait_for_wishes(1);
  stream_->fail_all("the registry is away");
  wait_until_idle();
  EXPECT_EQ(stream_->wishes(), 1u);
  start("one", false);
  start("other", false);
  wait_until_idle();
  EXPECT_EQ(stream_->wishes(), 3u) << "both are pulled anew";
}

TEST_F(BackgroundPullsTest, WhatIsUnderWayOrHasFailedIsListed) {
  EXPECT_TRUE(pulls_.list().empty());
  start("one", true);
  stream_->wait_for_wishes(1);
  auto listed = pulls_.list();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].reference, "r.example/a:1");
  EXPECT_TRUE(listed[0].cold);
  EXPECT_EQ(listed[0].total_bytes, 4u << 20);
  EXPECT_EQ(listed[0].done_bytes, 0u);
  EXPECT_EQ(listed[0].error, "");
  stream_->fail_all("the registry is away");
  wait_until_idle();
  listed = pulls_.list();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].error, "the registry is away");
  stream_->set_here();
  start("one", true);
  wait_until_idle();
  EXPECT_TRUE(pulls_.list().empty()) << "done";
}

TEST_F(BackgroundPullsTest, StopEndsWhatWaitsAndRefusesMore) {
  start("one", false);
  stream_->wait_for_wishes(1);
  pulls_.stop();
  EXPECT_TRUE(pulls_.idle());
  start("other", false);
  EXPECT_TRUE(pulls_.idle());
  EXPECT_EQ(stream_->wishes(), 1u);
  stream_->arrive();  // late, and to nobody's harm
}

TEST_F(BackgroundPullsTest, AFillEndsWhenItIsNotNeededAndBeginsAnew) {
  start_fill("one");
  stream_->wait_for_wishes(1);
  ASSERT_EQ(pulls_.list().size(), 1u);
  EXPECT_TRUE(pulls_.list()[0].fill);
  pulls_.end_fill({.index = digest_of("one"), .cold = false});
  EXPECT_TRUE(pulls_.list().empty());
  start_fill("one");
  stream_->wait_for_wishes(2);
  EXPECT_EQ(pulls_.list().size(), 1u);
  stream_->arrive();
  wait_until_idle();
}

TEST_F(BackgroundPullsTest, AFillThatSomebodyAsksForIsHis) {
  start_fill("one");
  start("one", false);
  pulls_.end_fill({.index = digest_of("one"), .cold = false});
  ASSERT_EQ(pulls_.list().size(), 1u);
  EXPECT_FALSE(pulls_.list()[0].fill);
  start_fill("one");
  EXPECT_FALSE(pulls_.list()[0].fill) << "it remains so";
  stream_->arrive();
  wait_until_idle();
}

}  // namespace
}  // namespace varve::fuse
