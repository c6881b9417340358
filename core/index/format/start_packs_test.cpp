#include "core/index/format/start_packs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/one_encoding.h"
#include "testing/refusal.h"
#include "testing/two_layers.h"

namespace varve::index {
namespace {

using test::kA;
using test::kB;
using test::map_of;
using ::testing::HasSubstr;

StartPack pack_of(const std::vector<PackRange>& ranges, std::size_t frames = 1) {
  StartPack pack{
      .blob = digest_of("blob"), .stream_digest = digest_of("stream"), .frames = {}, .ranges = ranges, .literals = {}};
  for (std::size_t i = 0; i < frames; ++i)
    pack.frames.push_back({.compressed_bytes = 100 + i,
                           .compressed_digest = digest_of(fmt::format("c{}", i)),
                           .stream_digest = digest_of(fmt::format("s{}", i))});
  return pack;
}

StartPacks packs_of_two() {
  StartPacks packs{.layers = {kA, kB}, .groups = {}};
  packs.groups.push_back({.kind = StartGroup::Kind::kProgram,
                          .name = "python3 -c pass",
                          .trigger = {0, {512, 4096}},
                          .pack = pack_of({{0, {512, 4096}}, {1, {1000, 300'000}}, {0, {0, 512}}}, 2)});
  packs.groups.push_back(
      {.kind = StartGroup::Kind::kImport, .name = "numpy", .trigger = {1, {5, 1}}, .pack = pack_of({{1, {20, 80}}})});
  packs.groups.back().pack.literals = {{1, 12, to_bytes(as_bytes("12345678"))}};
  return packs;
}

std::string message(const StartPacks& packs) {
  return test::refusal_of<CorruptData>([&] { packs.encode(); });
}

TEST(StartPacks, AreReadAsTheyWereWritten) {
  const auto packs = packs_of_two();
  const auto bytes = packs.encode();
  EXPECT_EQ(StartPacks::decode(bytes, "again"), packs);
  EXPECT_EQ(StartPacks::decode(StartPacks{}.encode(), "empty"), StartPacks{});
}

TEST(StartPacks, EveryCutAndEveryChangedBitIsFoundOrMeansSomethingElse) {
  test::expect_one_encoding<StartPacks>(packs_of_two().encode());
}

TEST(StartPacks, RefuseWhatNoPackCanBe) {
  auto packs = packs_of_two();
  packs.groups[1].pack.literals[0].stream_offset = 15;  // reaches into the range
  EXPECT_THAT(message(packs), HasSubstr("overlap"));
  packs = packs_of_two();
  packs.groups[0].pack.ranges.push_back({1, {2000, 10}});
  EXPECT_THAT(message(packs), HasSubstr("overlap"));
  packs = packs_of_two();
  packs.groups[0].pack.frames.pop_back();
  EXPECT_THAT(message(packs), HasSubstr("frames"));
  packs = packs_of_two();
  packs.groups[0].pack.frames[0].compressed_bytes = 2 * kPackFrameBytes;
  EXPECT_THAT(message(packs), HasSubstr("frame that cannot be"));
  packs = packs_of_two();
  std::swap(packs.groups[0], packs.groups[1]);
  EXPECT_THAT(message(packs), HasSubstr("order"));
  packs = packs_of_two();
  packs.groups[0].name = "a\x1b[31m";
  EXPECT_THAT(message(packs), HasSubstr("name"));
  packs = packs_of_two();
  packs.groups[0].pack.ranges = {};
  EXPECT_THAT(message(packs), HasSubstr("nothing"));
  packs = packs_of_two();
  packs.groups[0].trigger.layer = 2;
  EXPECT_THAT(message(packs), HasSubstr("no layer"));
  packs = packs_of_two();
  packs.layers.push_back(packs.layers.back());
  EXPECT_THAT(message(packs), HasSubstr("layers that are not in order"));
}

TEST(StartPacks, MustLieInTheImagesLayers) {
  const auto packs = packs_of_two();
  EXPECT_NO_THROW(packs.check({map_of(kB, 301'000), map_of(kA, 4608)}, "packs"));
  EXPECT_THROW(packs.check({map_of(kB, 300'999), map_of(kA, 4608)}, "packs"), CorruptData);
  EXPECT_THROW(packs.check({map_of(kB, 301'000), map_of(kA, 4607)}, "packs"), CorruptData);
  EXPECT_THROW(packs.check({map_of(kB, 301'000)}, "packs"), CorruptData);
}

TEST(StartPacks, AreLayersWhoseSpansAreTheFrames) {
  const auto map = packs_of_two().groups[0].pack.map();
  ASSERT_EQ(map.spans.size(), 2u);
  EXPECT_EQ(map.stream_bytes, 304'608u);
  EXPECT_EQ(map.compressed_bytes, 201u);
  EXPECT_EQ(map.spans[1].stream_range, (ByteRange{kPackFrameBytes, 304'608 - kPackFrameBytes}));
  EXPECT_EQ(map.spans[1].compressed_range, (ByteRange{100, 101}));
  EXPECT_EQ(LayerMap::decode(map.encode(), "again"), map);
}

}  // namespace
}  // namespace varve::index
