#include "fuse/stream/read_ahead.h"

#include <gtest/gtest.h>

#include "testing/layer_maker.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kSpanBytes = 100'000;
constexpr std::uint64_t kMaxBytes = 8 * kSpanBytes;

class ReadAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < 1'000; ++i)
      map_.spans.emplace_back().stream_range = {.offset = i * kSpanBytes, .length = kSpanBytes};
    map_.stream_bytes = 1'000 * kSpanBytes;
  }
  std::optional<ReadAhead::Ahead> read(std::uint64_t offset, std::uint64_t length, bool missed = true) {
    return ahead_.on_read({.offset = offset, .length = length}, missed);
  }

  index::LayerMap map_;
  ReadAhead ahead_{map_, kMaxBytes};
};

TEST_F(ReadAheadTest, ASequentialReaderGetsHalfOfWhatItHasReadUpToALimitAndNoSpanTwice) {
  std::size_t asked_to = 0;
  std::uint64_t longest = 0;
  for (std::uint64_t at = 0; at < 60 * kSpanBytes; at += 50'000) {
    const auto ahead = read(at, 50'000, at < kSpanBytes);
    if (!ahead || ahead->why != ReadAhead::Why::kReadsOn) continue;
    EXPECT_TRUE(asked_to == 0 || ahead->first == asked_to);
    asked_to = ahead->last;
    const auto bytes = ahead->last * kSpanBytes - (at + 50'000);
    EXPECT_LE(bytes, std::min((at + 50'000) / 2, kMaxBytes) + kSpanBytes) << at;
    longest = std::max(longest, bytes);
  }
  EXPECT_GE(longest, kMaxBytes);
  EXPECT_GE(asked_to, 60u) << "the reader never gets to the end of it";
}

TEST_F(ReadAheadTest, AMissNamesWhatFollowsIt) {
  for (std::size_t span = 501; span < 510; ++span) map_.spans[span].follows = span != 507;
  const auto ahead = read(503 * kSpanBytes, 4'096);
  ASSERT_TRUE(ahead);
  EXPECT_EQ(ahead->why, ReadAhead::Why::kFollows);
  EXPECT_EQ(ahead->first, 504u);
  EXPECT_EQ(ahead->last, 507u);
  const auto last = read(520 * kSpanBytes, 4'096);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->why, ReadAhead::Why::kNeighbour) << "nothing follows it";
}

TEST_F(ReadAheadTest, RandomReadersGetNoSequence) {
  for (std::uint64_t i = 0; i < 500; ++i) {
    const auto ahead = read(i * 7'919 % 1'000 * kSpanBytes, 4'096);
    EXPECT_TRUE(!ahead || ahead->why != ReadAhead::Why::kReadsOn) << i;
  }
}

TEST_F(ReadAheadTest, AMissInALoneSpanNamesItsNeighbourAndAHitDoesNot) {
  const auto ahead = read(500 * kSpanBytes, 4'096);
  ASSERT_TRUE(ahead);
  EXPECT_EQ(ahead->why, ReadAhead::Why::kNeighbour);
  EXPECT_EQ(ahead->first, 501u);
  EXPECT_EQ(ahead->last, 502u);
  EXPECT_FALSE(read(700 * kSpanBytes, 4'096, false));
  EXPECT_FALSE(read(999 * kSpanBytes + 10, 4'096));  // nothing comes behind the last
}

TEST_F(ReadAheadTest, FollowsSeveralReadersAtOnce) {
  std::array<std::size_t, 4> seen{};
  for (std::uint64_t step = 0; step < 60; ++step)
    for (std::uint64_t reader = 0; reader < 4; ++reader)
      if (const auto ahead = read(reader * 200 * kSpanBytes + step * 32'768, 32'768, false);
          ahead && ahead->why == ReadAhead::Why::kReadsOn) {
        EXPECT_GE(ahead->first, reader * 200);
        EXPECT_LT(ahead->last, reader * 200 + 200);
        ++seen[reader];
      }
  for (const auto count : seen) EXPECT_GE(count, 3u);
}

TEST_F(ReadAheadTest, TakesPiecesOfOneSequenceOutOfOrder) {
  bool sequential = false;
  for (std::uint64_t at = 0; at < 20 * kSpanBytes; at += 2 * 131'072) {
    for (const auto offset : {at + 131'072, at})
      if (const auto ahead = read(offset, 131'072, false))
        sequential = sequential || ahead->why == ReadAhead::Why::kReadsOn;
  }
  EXPECT_TRUE(sequential);
}

TEST_F(ReadAheadTest, StopsAtTheEndOfTheLayerAndForImpossibleRanges) {
  for (std::uint64_t at = 980 * kSpanBytes; at < 1'000 * kSpanBytes; at += 50'000) {
    const auto ahead = read(at, 50'000);
    EXPECT_TRUE(!ahead || ahead->last <= 1'000);
  }
  EXPECT_FALSE(read(1'000 * kSpanBytes, 10));
  EXPECT_FALSE(read(0, 0));
}

TEST_F(ReadAheadTest, NobodyIsFollowedIntoWhatIsColdButWhoReadsIt) {
  ahead_.note_cold(digest_of("image"), {{500 * kSpanBytes, 100 * kSpanBytes}});
  EXPECT_FALSE(read(499 * kSpanBytes, 4'096)) << "the neighbour is cold";
  EXPECT_TRUE(read(550 * kSpanBytes, 4'096)) << "it is being read itself";
}

TEST_F(ReadAheadTest, AReaderThatGoesOnIntoWhatIsColdIsFollowedFromThere) {
  ahead_.note_cold(digest_of("image"), {{500 * kSpanBytes, 100 * kSpanBytes}});
  std::size_t asked_to = 0;
  for (std::uint64_t at = 470 * kSpanBytes; at < 500 * kSpanBytes; at += 50'000) {
    if (const auto ahead = read(at, 50'000, false)) asked_to = std::max(asked_to, ahead->last);
  }
  EXPECT_EQ(asked_to, 500u);
  std::size_t first = 1'000;
  for (std::uint64_t at = 500 * kSpanBytes; at < 504 * kSpanBytes; at += 50'000) {
    if (const auto ahead = read(at, 50'000)) first = std::min(first, ahead->first);
  }
  EXPECT_EQ(first, 501u) << "what was cut off is asked for now";
}

TEST_F(ReadAheadTest, ALayerOfSeveralImagesIsColdWhereAllSaySo) {
  const auto follows = [&](std::uint64_t span) { return ReadAheadTest::read(span * kSpanBytes, 10).has_value(); };
  ahead_.note_cold(digest_of("one"), {{500 * kSpanBytes, 100 * kSpanBytes}});
  EXPECT_FALSE(follows(499));
  ahead_.note_cold(digest_of("other"), {});
  EXPECT_TRUE(follows(489));
  ahead_.note_cold(digest_of("one"), {{300 * kSpanBytes, 100 * kSpanBytes}});
  ahead_.note_cold(digest_of("other"), {{350 * kSpanBytes, 100 * kSpanBytes}});
  EXPECT_TRUE(follows(299));
  EXPECT_TRUE(follows(320));
  EXPECT_FALSE(follows(349));
}

}  // namespace
}  // namespace varve::fuse
