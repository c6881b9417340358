#include "core/index/format/seeds.h"

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

constexpr std::array<std::byte, 4> kTime{std::byte(1), std::byte(2), std::byte(3), std::byte(4)};

Seeds seeds_of_two() {
  Seeds seeds;
  for (const char* name : {"one", "two"})
    seeds.sources.push_back({.layer = digest_of(name), .map = digest_of("map"), .entries = digest_of("entries")});
  std::ranges::sort(seeds.sources);
  seeds.layers.push_back(
      {.layer = kA,
       .ranges = {{.stream_range = {512, 100}, .source = 1, .source_offset = 1024},
                  {.stream_range = {1536, 4000}, .source = 1, .source_offset = 2048},
                  {.stream_range = {6144, 16}, .source = 0, .source_offset = 0}},
       .literals = {{.stream_offset = 1544, .bytes = kTime}, {.stream_offset = 6152, .bytes = kTime}}});
  seeds.layers.push_back({.layer = kB,
                          .ranges = {{.stream_range = {0, kMaxStreamBytes}, .source = 0, .source_offset = 0}},
                          .literals = {{.stream_offset = kMaxStreamBytes - 4, .bytes = kTime}}});
  return seeds;
}

std::string message(const Seeds& seeds) {
  return test::refusal_of<CorruptData>([&] { seeds.encode(); });
}

TEST(Seeds, AreReadAsTheyWereWritten) {
  const auto seeds = seeds_of_two();
  EXPECT_EQ(Seeds::decode(seeds.encode(), "again"), seeds);
  EXPECT_EQ(unpack_seeds(pack_seeds(seeds), "again"), seeds);
  EXPECT_EQ(unpack_seeds(pack_seeds(seeds), "again", seeds.encode().size()), seeds);
  EXPECT_THROW(unpack_seeds(pack_seeds(seeds), "too much", seeds.encode().size() - 1), Unsupported);
  EXPECT_EQ(Seeds::decode(Seeds{}.encode(), "empty"), Seeds{});
  EXPECT_EQ(seeds.bytes(), 100 + 4000 + 16 + kMaxStreamBytes);
}

TEST(Seeds, EveryCutAndEveryChangedBitIsFoundOrMeansSomethingElse) {
  test::expect_one_encoding<Seeds>(seeds_of_two().encode());
}

TEST(Seeds, RefuseWhatCannotBe) {
  auto seeds = seeds_of_two();
  seeds.layers[0].ranges[0].stream_range.length = 1025;
  EXPECT_THAT(message(seeds), HasSubstr("ranges that are not in order"));
  seeds = seeds_of_two();
  seeds.layers[0].ranges[0].stream_range.length = 0;
  EXPECT_THAT(message(seeds), HasSubstr("range that cannot be"));
  seeds = seeds_of_two();
  seeds.layers[0].ranges[1].source_offset = kMaxStreamBytes - 3584;
  EXPECT_THAT(message(seeds), HasSubstr("range that cannot be"));
  seeds = seeds_of_two();
  seeds.layers[0].ranges[1].source_offset += 1;
  EXPECT_THAT(message(seeds), HasSubstr("not aligned"));
  seeds = seeds_of_two();
  seeds.layers[0].ranges[2].stream_range.offset += 1;
  EXPECT_THAT(message(seeds), HasSubstr("not aligned"));
  seeds = seeds_of_two();
  seeds.layers[0].ranges[0].stream_range.length = 1024;
  EXPECT_EQ(message(seeds), "");
  seeds = seeds_of_two();
  seeds.layers[0].ranges[1].source = 2;
  EXPECT_THAT(message(seeds), HasSubstr("no source"));
  seeds = seeds_of_two();
  seeds.layers[0].ranges.clear();
  EXPECT_THAT(message(seeds), HasSubstr("without ranges"));
  seeds = seeds_of_two();
  seeds.sources.push_back({.layer = Digest::from_raw(Bytes(32, std::byte(0xff))), .map = {}, .entries = {}});
  EXPECT_THAT(message(seeds), HasSubstr("source without ranges"));
  seeds = seeds_of_two();
  std::swap(seeds.sources[0], seeds.sources[1]);
  EXPECT_THAT(message(seeds), HasSubstr("sources that are not in order"));
  seeds = seeds_of_two();
  std::swap(seeds.layers[0], seeds.layers[1]);
  EXPECT_THAT(message(seeds), HasSubstr("layers that are not in order"));
}

TEST(Seeds, ALiteralLiesInOneRange) {
  const auto moved = [](std::uint64_t offset) {
    auto seeds = seeds_of_two();
    seeds.layers[0].literals[0].stream_offset = offset;
    return message(seeds);
  };
  EXPECT_EQ(moved(1536), "");
  EXPECT_THAT(moved(1535), HasSubstr("literal of no range"));
  EXPECT_EQ(moved(5532), "");
  EXPECT_THAT(moved(5533), HasSubstr("literal of no range"));
  EXPECT_EQ(moved(608), "");
  EXPECT_THAT(moved(610), HasSubstr("literal of no range"));
  EXPECT_THAT(moved(6149), HasSubstr("literals that are not in order"));
}

TEST(Seeds, AreOfTheImagesLayersAlone) {
  auto seeds = seeds_of_two();
  seeds.layers[1].ranges[0].stream_range.length = 1000;
  seeds.layers[1].literals.clear();
  const auto refusal = [&](std::uint64_t a, std::uint64_t b) {
    return test::refusal_of<CorruptData>([&] { seeds.check({map_of(kA, a), map_of(kB, b)}, "seeds"); });
  };
  EXPECT_EQ(refusal(6160, 1000), "");
  EXPECT_THAT(refusal(6159, 1000), HasSubstr("ends at 6160"));
  EXPECT_THAT(refusal(6160, 999), HasSubstr("ends at 1000"));
  EXPECT_THROW(seeds.check({map_of(kA, 10'000)}, "seeds"), CorruptData);
}

}  // namespace
}  // namespace varve::index
