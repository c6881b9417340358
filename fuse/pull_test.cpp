#include "fuse/pull.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "fuse/fake_layer_stream.h"
#include "tests/support/temp_dir.h"

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
  pull_layers({stream_}, {}, never);
  EXPECT_EQ(stream_->wishes(), 0u);
}

TEST_F(PullTest, WantsAllThatIsMissing) {
  stream_->set_missing();
  std::uint64_t done = 0, expected = 0;
  pull_layers({stream_}, [&](std::uint64_t d, std::uint64_t e) { done = d, expected = e; }, never);
  EXPECT_EQ(done, kLarge);
  EXPECT_EQ(expected, kLarge);
}

TEST_F(PullTest, LeavesRoomForReadersByWantingLittleAtATime) {
  stream_->hold();
  std::atomic<bool> stop = false;
  std::jthread puller([&] { EXPECT_THROW(pull_layers({stream_}, {}, [&] { return stop.load(); }), Cancelled); });
  stream_->wait_for_wishes(8);
  stop = true;
  puller.join();
  EXPECT_EQ(stream_->wishes(), 8u);
  stream_->arrive();  // late, and to nobody's harm
}

TEST_F(PullTest, FailsWithTheErrorOfTheStream) {
  stream_->fail_all("the registry is away");
  EXPECT_THROW(pull_layers({stream_}, {}, never), TemporaryError);
}

}  // namespace
}  // namespace varve::fuse
