#include "indexer/span_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace varve::indexer {
namespace {

constexpr std::uint64_t kMib = 1024 * 1024;
constexpr std::uint64_t kBlock = 64 * 1024;
const SpanPolicy kPolicy{.max_stream_bytes = 4 * kMib, .follower_stream_bytes = 0};

SpanStart place(std::uint64_t stream_offset) {
  return {.compressed_offset = stream_offset / 2 + 10,
          .bits = 3,
          .stream_offset = stream_offset,
          .window_bytes = stream_offset == 0 ? 0u : 32'768u};
}

// All starts that a planner makes of places every `step` bytes.
std::vector<std::uint64_t> choose(SpanPlanner& planner, std::uint64_t stream_bytes, std::uint64_t step = kBlock) {
  std::vector<std::uint64_t> starts;
  const auto take = [&] {
    for (const auto& start : planner.take_decided()) starts.push_back(start.stream_offset);
  };
  for (std::uint64_t at = 0; at < stream_bytes; at += step) {
    planner.offer(place(at));
    take();
    if (const auto* next = planner.first_undecided()) {
      EXPECT_GT(next->stream_offset, starts.back());
    }
  }
  planner.finish(stream_bytes / 2 + 10, stream_bytes);
  take();
  EXPECT_EQ(planner.first_undecided(), nullptr);
  return starts;
}

TEST(SpanPlannerTest, WhereNothingIsReadSpansAreAsLongAsTheyMayBe) {
  SpanPlanner planner(kPolicy);
  EXPECT_EQ(choose(planner, 20 * kMib), (std::vector<std::uint64_t>{0, 4 * kMib, 8 * kMib, 12 * kMib, 16 * kMib}));
}

TEST(SpanPlannerTest, ALongSpanIsCutFurtherIntoSpansThatFollowEachOther) {
  const SpanPolicy policy{.max_stream_bytes = 4 * kMib, .follower_stream_bytes = 4 * kBlock, .follower_price_bytes = 0};
  SpanPlanner planner(policy);
  std::vector<SpanStart> starts;
  const auto take = [&] {
    for (const auto& start : planner.take_decided()) starts.push_back(start);
  };
  for (std::uint64_t at = 0; at < 20 * kMib; at += kBlock) {
    planner.offer(place(at));
    take();
  }
  planner.finish(10 * kMib + 10, 20 * kMib);
  take();
  ASSERT_EQ(starts.size(), 80u);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    EXPECT_EQ(starts[i].stream_offset, i * 4 * kBlock);
    EXPECT_EQ(starts[i].follows, i % 16 != 0) << i;
  }
}

TEST(SpanPlannerTest, CutsAroundWhatIsReadTogether) {
  SpanPlanner planner(kPolicy);
  planner.expect_whole(3 * kMib + 100, 3 * kMib + kBlock, kOnce);
  const auto starts = choose(planner, 8 * kMib);
  EXPECT_TRUE(std::ranges::binary_search(starts, 3 * kMib));
  EXPECT_TRUE(std::ranges::binary_search(starts, 3 * kMib + kBlock));
}

TEST(SpanPlannerTest, DoesNotCutWithinWhatIsReadTogether) {
  SpanPlanner planner(kPolicy);
  planner.expect_whole(kMib, 3 * kMib, kOnce);
  for (const auto start : choose(planner, 8 * kMib)) EXPECT_FALSE(start > kMib && start < 3 * kMib) << start;
}

TEST(SpanPlannerTest, CutsFinerWhereReadingIsScattered) {
  SpanPlanner planner(kPolicy);
  planner.expect_scattered(8 * kMib, 16 * kMib, kOnce);
  const auto starts = choose(planner, 24 * kMib);
  const auto within = [&](std::uint64_t begin, std::uint64_t end) {
    return std::ranges::count_if(starts, [&](std::uint64_t start) { return start >= begin && start < end; });
  };
  EXPECT_GE(within(8 * kMib, 16 * kMib), 12);
  EXPECT_LE(within(0, 8 * kMib), 3);
}

TEST(SpanPlannerTest, CutsFinerWhereLibrariesAreRead) {
  SpanPlanner planner(kPolicy);
  planner.expect_in_library(8 * kMib, 16 * kMib, kOnce / 4);
  const auto starts = choose(planner, 24 * kMib);
  const auto within = [&](std::uint64_t begin, std::uint64_t end) {
    return std::ranges::count_if(starts, [&](std::uint64_t start) { return start >= begin && start < end; });
  };
  EXPECT_GT(within(8 * kMib, 16 * kMib), within(0, 8 * kMib));
}

TEST(SpanPlannerTest, AHigherPriceMakesFewerSpans) {
  const auto spans_at = [](std::uint64_t price) {
    SpanPlanner planner({.span_price_bytes = price, .max_stream_bytes = 4 * kMib, .follower_stream_bytes = 0});
    planner.expect_scattered(0, 32 * kMib, kOnce / 2);
    return choose(planner, 32 * kMib).size();
  };
  EXPECT_GT(spans_at(1'000), spans_at(20'000));
  EXPECT_GT(spans_at(20'000), spans_at(400'000));
}

TEST(SpanPlannerTest, ALongBlockIsOneSpan) {
  SpanPlanner planner(kPolicy);
  EXPECT_EQ(choose(planner, 100 * kMib, 50 * kMib), (std::vector<std::uint64_t>{0, 50 * kMib}));
}

TEST(SpanPlannerTest, SpansStayWithinTheLimitAndAreNeverEmpty) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    SpanPlanner planner({.span_price_bytes = 1'000 + random() % 100'000, .max_stream_bytes = 4 * kMib});
    std::uint64_t at = 0;
    std::vector<std::uint64_t> starts;
    for (int i = 0; i < 2'000; ++i) {
      if (random() % 4 == 0)
        planner.expect_whole(at + random() % kMib, at + kMib + random() % (2 * kMib), random() % kOnce);
      if (random() % 4 == 0) planner.expect_scattered(at, at + random() % (4 * kMib), random() % kOnce);
      planner.offer(place(at));
      for (const auto& start : planner.take_decided()) starts.push_back(start.stream_offset);
      at += random() % 3 == 0 ? 0 : random() % 200'000;
    }
    planner.finish(at / 2 + 10, at + 1);
    for (const auto& start : planner.take_decided()) starts.push_back(start.stream_offset);
    for (std::size_t i = 1; i < starts.size(); ++i) {
      ASSERT_GT(starts[i], starts[i - 1]);
      ASSERT_LE(starts[i] - starts[i - 1], 4 * kMib);
    }
  }
}

TEST(SpanPlannerTest, AnEmptyStreamHasNoSpans) {
  SpanPlanner planner(kPolicy);
  planner.offer(place(0));
  planner.finish(30, 0);
  EXPECT_TRUE(planner.take_decided().empty());
}

TEST(SpanPlannerTest, BlocksWithoutBytesDoNotPileUp) {
  SpanPlanner planner(kPolicy);
  SpanStart start;
  std::size_t decided = 0;
  for (int i = 0; i < 100; ++i) {
    start.compressed_offset += kMib;
    start.stream_offset += 20'000;
    planner.offer(start);
    decided += planner.take_decided().size();
    const auto* next = planner.first_undecided();
    if (next != nullptr) {
      EXPECT_LE(start.compressed_offset - next->compressed_offset, 17 * kMib);
    }
  }
  EXPECT_GT(decided, 3u);
}

}  // namespace
}  // namespace varve::indexer
