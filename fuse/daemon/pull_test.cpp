#include "fuse/daemon/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/base/errors.h"
#include "core/base/files/file.h"
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

  test::TempDir dir_;
  Progress progress_;
  CancelFlag cancel_;
  const Work work_{progress_, cancel_};
  std::shared_ptr<test::FakeLayerStream> stream_;
};

TEST_F(PullTest, WantsNothingOfWhatIsHere) {
  pull_layers({{stream_, {}}}, work_);
  EXPECT_EQ(stream_->wishes(), 0u);
}

TEST_F(PullTest, WantsAllThatIsMissing) {
  stream_->set_missing();
  pull_layers({{stream_, {}}}, work_);
  EXPECT_EQ(progress_.done_bytes(), kLarge);
  EXPECT_EQ(progress_.expected_bytes(), kLarge);
}

TEST_F(PullTest, LeavesOutTheSpansThatAreColdAllOver) {
  stream_->set_missing();
  stream_->cut_into_spans(1 << 20);
  const std::uint64_t mib = 1 << 20;
  // The first range is cold from end to end, the second begins and ends inside spans that others need.
  pull_layers({{stream_, {{10 * mib, 20 * mib}, {50 * mib + 1, 3 * mib}, {190 * mib, 10 * mib}}}}, work_);
  EXPECT_THAT(stream_->wished(), testing::ElementsAre(ByteRange{0, 10 * mib}, ByteRange{30 * mib, 21 * mib},
                                                      ByteRange{53 * mib, 137 * mib}));
  EXPECT_EQ(progress_.expected_bytes(), kLarge - 32 * mib);
  EXPECT_EQ(progress_.done_bytes(), progress_.expected_bytes());
}

TEST_F(PullTest, OfEveryLayerTheSameShareComesAtATime) {
  write_file_atomically(dir_ / "small", {});
  const auto small = std::make_shared<test::FakeLayerStream>(dir_ / "small", kLarge / 10);
  for (const auto& stream : {stream_, small}) stream->hold();
  std::jthread puller([&] { EXPECT_THROW(pull_layers({{stream_, {}}, {small, {}}}, work_), Cancelled); });
  while (stream_->wishes() + small->wishes() < 8) std::this_thread::yield();
  cancel_.cancel();
  puller.join();
  EXPECT_EQ(small->wishes(), 0u) << "its first piece is two fifths of it, eight of the other are less";
  for (const auto& stream : {stream_, small}) stream->arrive();
}

TEST_F(PullTest, OneLayerAfterTheOtherWhereThatIsAskedFor) {
  write_file_atomically(dir_ / "upper", {});
  const auto upper = std::make_shared<test::FakeLayerStream>(dir_ / "upper", kLarge);
  for (const auto& stream : {stream_, upper}) stream->hold();
  std::jthread puller([&] {
    EXPECT_THROW(pull_layers({{stream_, {}}, {upper, {}}}, work_, {.side_by_side = false}), Cancelled);
  });
  stream_->wait_for_wishes(8);
  cancel_.cancel();
  puller.join();
  EXPECT_EQ(upper->wishes(), 0u);
  for (const auto& stream : {stream_, upper}) stream->arrive();
}

TEST_F(PullTest, OfTheSameShareThatOfTheLowerLayerComesFirst) {
  write_file_atomically(dir_ / "upper", {});
  const auto upper = std::make_shared<test::FakeLayerStream>(dir_ / "upper", kLarge);
  for (const auto& stream : {stream_, upper}) stream->hold();
  std::jthread puller([&] { EXPECT_THROW(pull_layers({{stream_, {}}, {upper, {}}}, work_), Cancelled); });
  while (stream_->wishes() + upper->wishes() < 8) std::this_thread::yield();
  cancel_.cancel();
  puller.join();
  EXPECT_EQ(stream_->wishes(), 4u);
  EXPECT_EQ(upper->wishes(), 4u);
  for (const auto& stream : {stream_, upper}) stream->arrive();
}

TEST_F(PullTest, LeavesRoomForReadersByWantingLittleAtATime) {
  stream_->hold();
  std::jthread puller([&] { EXPECT_THROW(pull_layers({{stream_, {}}}, work_), Cancelled); });
  stream_->wait_for_wishes(8);
  cancel_.cancel();
  puller.join();
  EXPECT_EQ(stream_->wishes(), 8u);
  stream_->arrive();  // late, and to nobody's harm
}

TEST_F(PullTest, GivesWayToWhoWaitsButNotForEver) {
  stream_->set_missing();
  std::atomic<unsigned> asked = 0;
  std::atomic<bool> waits = true;
  const PullPace pace{.piece_bytes = 20 << 20, .max_pieces = 2, .somebody_waits = [&] {
                        ++asked;
                        return waits.load();
                      }};
  pull_layers({{stream_, {}}}, work_, pace);
  EXPECT_EQ(progress_.done_bytes(), kLarge);
  EXPECT_GE(asked, 10u) << "before each piece";
}

TEST_F(PullTest, IsCancelledWhileItGivesWay) {
  stream_->hold();
  std::atomic<bool> gives_way = false;
  const PullPace pace{.piece_bytes = 1 << 20, .max_pieces = 2, .somebody_waits = [&] {
                        gives_way = true;
                        return true;
                      }};
  std::jthread puller([&] { EXPECT_THROW(pull_layers({{stream_, {}}}, work_, pace), Cancelled); });
  while (!gives_way) std::this_thread::yield();
  cancel_.cancel();
  puller.join();
  EXPECT_LE(stream_->wishes(), 2u);
  stream_->arrive();
}

TEST_F(PullTest, FailsWithTheErrorOfTheStream) {
  stream_->fail_all("the registry is away");
  EXPECT_THROW(pull_layers({{stream_, {}}}, work_), TemporaryError);
}

TEST_F(PullTest, OfRangesWantsNothingElse) {
  stream_->set_missing();
  const std::uint64_t mib = 1 << 20;
  pull_ranges({{stream_, {{100 * mib, 10 * mib}, {0, mib}}}}, work_);
  EXPECT_THAT(stream_->wished(), testing::ElementsAre(ByteRange{0, mib}, ByteRange{100 * mib, 10 * mib}));
  EXPECT_EQ(stream_->wishes(), 3u) << "large ones in pieces";
  EXPECT_EQ(progress_.done_bytes(), 11 * mib);
  EXPECT_EQ(progress_.expected_bytes(), 11 * mib);
  stream_->set_here();
  pull_ranges({{stream_, {{0, mib}}}}, work_);
  EXPECT_EQ(stream_->wishes(), 3u) << "what is here is not wanted";
}

TEST_F(PullTest, OfRangesStopsWhenItIsTold) {
  stream_->hold();
  cancel_.cancel();
  EXPECT_THROW(pull_ranges({{stream_, {{0, 1 << 20}}}}, work_), Cancelled);
  stream_->arrive();  // late, and counted by nobody
  EXPECT_EQ(progress_.done_bytes(), 0u);
}

}  // namespace
}  // namespace varve::fuse
