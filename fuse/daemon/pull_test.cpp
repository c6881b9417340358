#include "fuse/daemon/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kLarge = 200ull << 20;

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    write_file_atomically(dir_ / "layer", {});
    stream_ = std::make_shared<test::FakeLayerStream>(dir_ / "layer", kLarge);
  }
  static bool never() { return false; }

  test::TempDir dir_;
  std::shared_ptr<test::FakeLayerStream> stream_;
};

TEST_F(PullTest, WantsNothingOfWhatIsHere) {
  pull_layers({{stream_, {}}}, {}, never);
  EXPECT_EQ(stream_->wishes(), 0u);
}

TEST_F(PullTest, WantsAllThatIsMissing) {
  stream_->set_missing();
  std::uint64_t done = 0, expected = 0;
  pull_layers(
      {{stream_, {}}}, [&](std::uint64_t d, std::uint64_t e) { done = d, expected = e; }, never);
  EXPECT_EQ(done, kLarge);
  EXPECT_EQ(expected, kLarge);
}

TEST_F(PullTest, LeavesOutTheSpansThatAreColdAllOver) {
  stream_->set_missing();
  stream_->cut_into_spans(1 << 20);
  const std::uint64_t mib = 1 << 20;
  std::uint64_t done = 0, expected = 0;
  // The first range is cold from end to end, the second begins and ends inside spans that others need.
  pull_layers(
      {{stream_, {{10 * mib, 20 * mib}, {50 * mib + 1, 3 * mib}, {190 * mib, 10 * mib}}}},
      [&](std::uint64_t d, std::uint64_t e) { done = d, expected = e; }, never);
  EXPECT_THAT(stream_->wished(), testing::ElementsAre(ByteRange{0, 10 * mib}, ByteRange{30 * mib, 21 * mib},
                                                      ByteRange{53 * mib, 137 * mib}));
  EXPECT_EQ(expected, kLarge - 32 * mib);
  EXPECT_EQ(done, expected);
}

TEST_F(PullTest, LeavesRoomForReadersByWantingLittleAtATime) {
  stream_->hold();
  std::atomic<bool> stop = false;
  std::jthread puller([&] { EXPECT_THROW(pull_layers({{stream_, {}}}, {}, [&] { return stop.load(); }), Cancelled); });
  stream_->wait_for_wishes(8);
  stop = true;
  puller.join();
  EXPECT_EQ(stream_->wishes(), 8u);
  stream_->arrive();  // late, and to nobody's harm
}

TEST_F(PullTest, FailsWithTheErrorOfTheStream) {
  stream_->fail_all("the registry is away");
  EXPECT_THROW(pull_layers({{stream_, {}}}, {}, never), TemporaryError);
}

TEST_F(PullTest, OfRangesWantsNothingElse) {
  stream_->set_missing();
  const std::uint64_t mib = 1 << 20;
  std::uint64_t done = 0, expected = 0;
  pull_ranges(
      {{stream_, {{100 * mib, 10 * mib}, {0, mib}}}}, [&](std::uint64_t d, std::uint64_t e) { done = d, expected = e; },
      never);
  EXPECT_THAT(stream_->wished(), testing::ElementsAre(ByteRange{0, mib}, ByteRange{100 * mib, 10 * mib}));
  EXPECT_EQ(stream_->wishes(), 3u) << "large ones in pieces";
  EXPECT_EQ(done, 11 * mib);
  EXPECT_EQ(expected, 11 * mib);
  stream_->set_here();
  pull_ranges({{stream_, {{0, mib}}}}, {}, never);
  EXPECT_EQ(stream_->wishes(), 3u) << "what is here is not wanted";
}

TEST_F(PullTest, OfRangesStopsWhenItIsTold) {
  stream_->hold();
  EXPECT_THROW(pull_ranges({{stream_, {{0, 1 << 20}}}}, {}, [] { return true; }), Cancelled);
  stream_->arrive();
}

}  // namespace
}  // namespace varve::fuse
