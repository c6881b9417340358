#include "core/index/format/cold_ranges.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/index/merge/mark_cold.h"

namespace varve::index {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kSpan = 1000;

std::shared_ptr<LayerMap> map_of(std::string_view name, std::size_t spans, LayerFormat format = LayerFormat::kZstd) {
  auto map = std::make_shared<LayerMap>();
  map->layer_digest = digest_of(name);
  map->format = format;
  map->stream_bytes = spans * kSpan;
  map->compressed_bytes = spans * 100;
  for (std::size_t i = 0; i < spans; ++i) {
    auto& span = map->spans.emplace_back();
    span.stream_range = {.offset = i * kSpan, .length = kSpan};
    if (format != LayerFormat::kZstdSingle) span.compressed_range = {.offset = i * 100, .length = 100};
  }
  return map;
}

FlatEntry file(std::uint32_t layer, std::uint64_t offset, std::uint64_t length) {
  FlatEntry entry;
  entry.type = FileType::kRegular;
  entry.size = length;
  entry.layer = layer;
  entry.runs.push_back({.layer = layer, .run = {.file_offset = 0, .stream_offset = offset, .length = length}});
  return entry;
}

class MarkCold : public testing::Test {
 protected:
  std::vector<ByteRange> marked(std::set<std::string, std::less<>> cold) {
    return marked(ColdContent{.files = std::move(cold), .parts = {}});
  }
  std::vector<ByteRange> marked(const ColdContent& cold) {
    summary_ = {};
    const auto ranges = mark_cold(tree_, maps_, cold, &summary_);
    EXPECT_EQ(ColdRanges::decode(ranges.encode(), "again"), ranges);
    ranges.check(maps_, "ranges");
    EXPECT_EQ(ranges.bytes(), summary_.stream_bytes);
    return ranges.of(maps_[0]->layer_digest);
  }
  FlatTree tree_;
  std::vector<std::shared_ptr<const LayerMap>> maps_{map_of("a", 10)};
  ColdSummary summary_;
};

TEST_F(MarkCold, SpansThatSomethingElseNeedsAreNotCold) {
  tree_.entries["hot"] = file(0, 100, 1400);
  tree_.entries["cold"] = file(0, 1600, 2900);  // begins in the span where the hot one ends
  tree_.entries["warm"] = file(0, 6500, 100);
  EXPECT_THAT(marked({"cold"}), ElementsAre(ByteRange{2000, 3000}));
  EXPECT_EQ(summary_.files, 1u);
  EXPECT_EQ(summary_.content_bytes, 2900u);
  EXPECT_EQ(summary_.compressed_bytes, 300u);
  EXPECT_EQ(summary_.shared_span_bytes, 400u);
}

TEST_F(MarkCold, NeighboursAreOneRangeWithWhatNobodyReadsBetweenThem) {
  tree_.entries["cold/a"] = file(0, 0, 1000);
  tree_.entries["cold/b"] = file(0, 3200, 100);  // spans 1 and 2 hold what an upper layer replaced
  EXPECT_THAT(marked({"cold/a", "cold/b"}), ElementsAre(ByteRange{0, 4000}));
  tree_.entries["hot"] = file(0, 2000, 1);
  EXPECT_THAT(marked({"cold/a", "cold/b"}), ElementsAre(ByteRange{0, 1000}, ByteRange{3000, 1000}));
}

TEST_F(MarkCold, WhatNobodyReadsIsNotColdByItself) {
  tree_.entries["hot"] = file(0, 0, 10);
  EXPECT_THAT(marked({"gone", "elsewhere"}), IsEmpty());
  EXPECT_EQ(summary_.files, 0u);
}

TEST_F(MarkCold, AFileOfSeveralNamesIsColdOnlyIfAllOfThemAre) {
  tree_.entries["cold/a"] = file(0, 0, 1000);
  tree_.entries["hot/b"] = file(0, 0, 1000);
  tree_.entries["hot/b"].link_of = "cold/a";
  EXPECT_THAT(marked({"cold/a"}), IsEmpty());
  EXPECT_THAT(marked({"cold/a", "hot/b"}), ElementsAre(ByteRange{0, 1000}));
  EXPECT_EQ(summary_.files, 1u);
}

TEST_F(MarkCold, ARepeatedLayerIsOneStream) {
  maps_ = {map_of("a", 10), map_of("b", 1), map_of("a", 10)};
  tree_.entries["cold"] = file(0, 0, 3000);
  tree_.entries["hot"] = file(2, 1000, 1);
  EXPECT_THAT(marked({"cold"}), ElementsAre(ByteRange{0, 1000}, ByteRange{2000, 1000}));
}

TEST_F(MarkCold, ALayerOfOneFrameIsFetchedWholeAnyway) {
  maps_ = {map_of("a", 10, LayerFormat::kZstdSingle)};
  tree_.entries["cold"] = file(0, 0, 3000);
  EXPECT_THAT(marked({"cold"}), IsEmpty());
  EXPECT_EQ(summary_.single_frame_bytes, 3000u);
}

TEST_F(MarkCold, WhatAHotSpanFollowsIsFetchedWithItAndIsNotCold) {
  const auto map = map_of("a", 10, LayerFormat::kGzip);
  for (std::size_t span = 1; span < 5; ++span) map->spans[span].follows = true;
  maps_ = {map};
  tree_.entries["before"] = file(0, 0, 2000);
  tree_.entries["hot"] = file(0, 2000, 500);
  tree_.entries["behind"] = file(0, 3000, 1000);
  EXPECT_THAT(marked({"before", "behind"}), ElementsAre(ByteRange{3000, 1000}));
  EXPECT_THAT(marked({"before", "hot", "behind"}), ElementsAre(ByteRange{0, 4000}));
}

TEST_F(MarkCold, PartsOfAFileAreColdWhereSpansHoldNothingElse) {
  tree_.entries["lib"] = file(0, 500, 8000);
  tree_.entries["next"] = file(0, 8500, 100);
  // Of the stream: 1500 to 4700 and 5000 to 8500.
  EXPECT_THAT(marked({.files = {}, .parts = {{"lib", {{1000, 3200}, {4500, 3500}}}}}),
              ElementsAre(ByteRange{2000, 2000}, ByteRange{5000, 3000}));
  EXPECT_EQ(summary_.files, 0u);
  EXPECT_EQ(summary_.part_files, 1u);
  EXPECT_EQ(summary_.part_bytes, 6700u);
  EXPECT_EQ(summary_.compressed_bytes, 500u);
  EXPECT_EQ(summary_.shared_span_bytes, 500u + 700u + 500u);
  tree_.entries.erase("next");
  EXPECT_THAT(marked({.files = {}, .parts = {{"lib", {{4500, 3500}}}}}), ElementsAre(ByteRange{5000, 4000}))
      << "nobody reads what is behind the file";
}

TEST_F(MarkCold, PartsBesideColdFilesAreOneRange) {
  tree_.entries["cold"] = file(0, 0, 2500);
  tree_.entries["lib"] = file(0, 2500, 3500);
  EXPECT_THAT(marked({.files = {"cold"}, .parts = {{"lib", {{0, 1500}}}}}), ElementsAre(ByteRange{0, 4000}));
  EXPECT_THAT(marked({.files = {"cold", "lib"}, .parts = {{"lib", {{0, 1500}}}}}), ElementsAre(ByteRange{0, 6000}))
      << "a file that is cold is cold whole";
  EXPECT_EQ(summary_.part_files, 0u);
}

TEST_F(MarkCold, PartsCountUnderEveryNameOfAFileAndAcrossItsHoles) {
  auto sparse = file(0, 0, 2000);
  sparse.size = 10'000;
  sparse.runs.push_back({.layer = 0, .run = {.file_offset = 7000, .stream_offset = 2000, .length = 3000}});
  tree_.entries["a"] = sparse;
  tree_.entries["b"] = sparse;
  tree_.entries["b"].link_of = "a";
  EXPECT_THAT(marked({.files = {}, .parts = {{"b", {{1000, 7000}, {9000, 1000}}}}}),
              ElementsAre(ByteRange{1000, 2000}, ByteRange{4000, 1000}));
  EXPECT_THROW(marked({.files = {}, .parts = {{"a", {{0, 1}}}, {"b", {{0, 1}}}}}), CorruptData);
}

TEST_F(MarkCold, PartsThatCannotBeAreRefused) {
  tree_.entries["lib"] = file(0, 0, 3000);
  tree_.entries["folder"] = FlatEntry();
  for (const auto& parts : std::vector<std::vector<ByteRange>>{
           {{0, 3001}}, {{3000, 1}}, {{1, ~std::uint64_t(0)}}, {{0, 0}}, {{0, 10}, {9, 10}}, {{10, 10}, {0, 10}}})
    EXPECT_THROW(marked({.files = {}, .parts = {{"lib", parts}}}), CorruptData);
  EXPECT_THROW(marked({.files = {}, .parts = {{"folder", {{0, 1}}}}}), CorruptData);
  EXPECT_THROW(marked({.files = {}, .parts = {{"gone", {{0, 1}}}}}), CorruptData);
  EXPECT_THAT(marked({.files = {}, .parts = {{"lib", {}}}}), IsEmpty());
}

TEST_F(MarkCold, ATreeThatPointsOutsideItsLayersIsRefused) {
  tree_.entries["cold"] = file(0, 9999, 2);
  EXPECT_THROW(marked({"cold"}), CorruptData);
  tree_.entries["cold"] = file(1, 0, 2);
  EXPECT_THROW(marked({"cold"}), CorruptData);
}

TEST(ColdRanges, RefusesLayersAndRangesThatCannotBe) {
  const auto maps = std::vector<std::shared_ptr<const LayerMap>>{map_of("a", 2)};
  ColdRanges cold{.layers = {{.layer_digest = digest_of("a"), .ranges = {{0, 2000}}}}};
  cold.check(maps, "cold");
  cold.layers[0].ranges = {{0, 2001}};
  EXPECT_THROW(cold.check(maps, "cold"), CorruptData);
  cold.layers[0] = {.layer_digest = digest_of("b"), .ranges = {{0, 1}}};
  EXPECT_THROW(cold.check(maps, "cold"), CorruptData);
  for (const auto& ranges :
       std::vector<std::vector<ByteRange>>{{}, {{0, 0}}, {{0, 5}, {5, 5}}, {{9, 5}, {1, 2}}, {{1ull << 44, 1}}}) {
    cold.layers[0].ranges = ranges;
    EXPECT_THROW(cold.encode(), CorruptData);
  }
}

TEST(ColdRanges, LimitTheRangesOfAllLayersTogether) {
  ColdRanges cold;
  for (const char* name : {"a", "b"}) {
    auto& layer = cold.layers.emplace_back(LayerCold{.layer_digest = digest_of(std::string_view(name)), .ranges = {}});
    for (std::uint64_t i = 0; i < kMaxColdRanges / 2; ++i) layer.ranges.push_back({2 * i, 1});
  }
  std::ranges::sort(cold.layers, {}, &LayerCold::layer_digest);
  const auto most = cold.encode();
  EXPECT_LE(most.size(), kMaxColdBlobBytes);
  EXPECT_EQ(ColdRanges::decode(most, "most"), cold);
  cold.layers[1].ranges.push_back({2 * kMaxColdRanges, 1});
  EXPECT_THROW(cold.encode(), CorruptData);
  // What the encoder refuses, by hand: one more in the second layer, whose number of ranges is a varint of three bytes
  // behind its digest.
  auto more = most;
  const auto second = most.size() - kMaxColdRanges / 2 * 2 - 3;
  more[second] = std::byte(std::to_integer<unsigned>(more[second]) + 1);
  more.insert(more.end(), {std::byte(1), std::byte(1)});
  try {
    ColdRanges::decode(more, "more");
    FAIL();
  } catch (const CorruptData& error) {
    // At its place: before the ranges are read, not when all of them are in memory.
    EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("at {}: too many ranges", second + 3)));
  }
}

}  // namespace
}  // namespace varve::index
