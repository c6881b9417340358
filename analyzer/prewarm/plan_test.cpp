#include "analyzer/prewarm/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::prewarm {
namespace {

using index::LayerFormat;
using index::LayerMap;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kSpan = 1000;       // stream side
constexpr std::uint64_t kCompressed = 100;  // of a span

std::shared_ptr<LayerMap> map_of(std::string_view name, std::size_t spans, LayerFormat format = LayerFormat::kZstd) {
  auto map = std::make_shared<LayerMap>();
  map->layer_digest = digest_of(name);
  map->format = format;
  map->stream_bytes = spans * kSpan;
  map->compressed_bytes = spans * kCompressed;
  for (std::size_t i = 0; i < spans; ++i) {
    auto& span = map->spans.emplace_back();
    span.stream_range = {.offset = i * kSpan, .length = kSpan};
    if (format != LayerFormat::kZstdSingle) span.compressed_range = {.offset = i * kCompressed, .length = kCompressed};
  }
  return map;
}

// Spans [first, last) of a layer.
LayerRange spans(const std::shared_ptr<LayerMap>& map, std::uint64_t first, std::uint64_t last) {
  return {.layer = map->layer_digest, .stream_range = {.offset = first * kSpan, .length = (last - first) * kSpan}};
}

index::Profile profile_of(const std::vector<LayerRange>& ranges) {
  index::ProfileBuilder builder;
  for (const auto& range : ranges) builder.touch(range.layer, range.stream_range, 0);
  return builder.profile();
}

class PrewarmPlanTest : public ::testing::Test {
 protected:
  Image& image(const std::string& name, std::vector<std::shared_ptr<const LayerMap>> maps, std::uint64_t sessions = 0) {
    return images_.emplace_back(Image{.name = name,
                                      .maps = std::move(maps),
                                      .cold = {},
                                      .profile = {},
                                      .packs = {},
                                      .sessions = sessions,
                                      .packages = {}});
  }
  void plan(std::uint64_t budget) {
    options_.budget_bytes = budget;
    plan_ = make_plan(images_, present_, options_);
    std::uint64_t sum = 0;
    for (const auto& item : plan_.items) {
      if (item.action != Action::kTooLarge) sum += item.download_bytes;
      EXPECT_EQ(item.ranges.empty(), item.action == Action::kTooLarge || item.action == Action::kLocal);
    }
    EXPECT_EQ(plan_.download_bytes, sum);
    EXPECT_LE(sum, budget);
  }
  std::vector<std::string> words() const {
    std::vector<std::string> lines;
    for (const auto& item : plan_.items) {
      constexpr const char* kFates[] = {"fetch", "part", "here", "too large"};
      lines.push_back(fmt::format("{} {}: {} {}", images_[item.image].name,
                                  item.what == What::kProfile ? "profile" : item.name, kFates[int(item.action)],
                                  item.download_bytes));
    }
    return lines;
  }

  const std::shared_ptr<LayerMap> a_ = map_of("a", 20), b_ = map_of("b", 20);
  std::vector<Image> images_;
  Present present_;
  PlanOptions options_;
  Plan plan_;
};

TEST_F(PrewarmPlanTest, ProfilesOfTheMostUsedImageFirstThenPackagesBySessionsPerByte) {
  image("rare", {a_}, 3).profile = profile_of({spans(a_, 0, 2)});
  auto& often = image("often", {b_}, 40);
  often.profile = profile_of({spans(b_, 3, 4), spans(b_, 0, 1)});
  often.packages = {
      {"large", 30, {spans(b_, 5, 15)}}, {"small", 9, {spans(b_, 16, 17)}}, {"unused", 0, {spans(b_, 18, 19)}}};
  plan(10'000);
  EXPECT_THAT(words(), ElementsAre("often profile: fetch 200", "rare profile: fetch 200", "often small: fetch 100",
                                   "often large: fetch 1000"));
  EXPECT_THAT(plan_.items[0].ranges, ElementsAre(spans(b_, 3, 4), spans(b_, 0, 1))) << "in the order of reading";
}

TEST_F(PrewarmPlanTest, WithoutUseTheOrderIsTheUsers) {
  image("one", {a_}).profile = profile_of({spans(a_, 0, 1)});
  image("two", {b_}).profile = profile_of({spans(b_, 0, 1)});
  plan(1000);
  EXPECT_THAT(words(), ElementsAre("one profile: fetch 100", "two profile: fetch 100"));
}

TEST_F(PrewarmPlanTest, SharedLayersAreCountedOnceAndWhatIsHereNotAtAll) {
  image("one", {a_, b_}).profile = profile_of({spans(a_, 0, 4), spans(b_, 0, 1)});
  image("two", {a_, a_}).profile = profile_of({spans(a_, 2, 6)});
  present_[a_->layer_digest] = {{0, kSpan}, {5 * kSpan, kSpan + 10}};
  plan(1000);
  EXPECT_THAT(words(), ElementsAre("one profile: fetch 400", "two profile: fetch 100"));
  EXPECT_THAT(plan_.items[0].ranges, ElementsAre(spans(a_, 1, 4), spans(b_, 0, 1)));
  EXPECT_THAT(plan_.items[1].ranges, ElementsAre(spans(a_, 4, 5)));
  // Run again with all of that here: nothing is left to do.
  present_[a_->layer_digest] = {{0, 6 * kSpan}};
  present_[b_->layer_digest] = {{0, kSpan}};
  plan(1000);
  EXPECT_THAT(words(), ElementsAre("one profile: here 0", "two profile: here 0"));
}

TEST_F(PrewarmPlanTest, OfAProfileItsBeginningOfAPackageAllOrNothing) {
  auto& one = image("one", {a_, b_}, 5);
  one.profile = profile_of({spans(a_, 10, 11), spans(b_, 0, 5)});
  one.packages = {{"needs two", 9, {spans(a_, 0, 2)}}, {"needs one", 1, {spans(a_, 3, 4)}}};
  plan(399);
  EXPECT_THAT(words(),
              ElementsAre("one profile: part 300", "one needs two: too large 200", "one needs one: too large 100"));
  EXPECT_THAT(plan_.items[0].ranges, ElementsAre(spans(a_, 10, 11), spans(b_, 0, 2)));
  images_[0].profile = {};
  plan(150);
  EXPECT_THAT(words(), ElementsAre("one needs two: too large 200", "one needs one: fetch 100"))
      << "a smaller one may still fit";
  plan(0);
  EXPECT_THAT(words(), ElementsAre("one needs two: too large 200", "one needs one: too large 100"));
}

TEST_F(PrewarmPlanTest, PacksOfProgramsFirstThenThoseOfImportsBySessionsPerByte) {
  const auto pack = [&](const std::string& name, bool is_program, std::uint64_t trigger, std::size_t frames) {
    return Pack{.name = name,
                .is_program = is_program,
                .trigger = spans(a_, trigger, trigger + 1),
                .map = map_of("pack " + name, frames)};
  };
  auto& one = image("one", {a_}, 40);
  one.profile = profile_of({spans(a_, 0, 20)});
  one.packs = {pack("python", true, 0, 3),  pack("jupyter", true, 1, 2), pack("rare", false, 5, 1),
               pack("often", false, 10, 2), pack("never", false, 15, 1), pack("nobody's", false, 19, 1)};
  one.packages = {{"rare", 2, {spans(a_, 5, 6)}}, {"often", 30, {spans(a_, 9, 12)}}, {"never", 0, {spans(a_, 15, 16)}}};
  plan(1500);
  EXPECT_THAT(words(), ElementsAre("one python: fetch 300", "one jupyter: fetch 200", "one often: fetch 200",
                                   "one rare: fetch 100", "one often: fetch 300", "one rare: fetch 100"))
      << "the packages come after the packs";
  EXPECT_EQ(plan_.items[2].what, What::kImportPack);
  EXPECT_EQ(plan_.items[2].sessions, 30u);
  EXPECT_THAT(plan_.items[0].ranges, ElementsAre(spans(map_of("pack python", 3), 0, 3)));
  // The beginning of one, as of a profile; and what is here is not fetched again.
  present_[digest_of("pack python")] = {{0, 3 * kSpan}};
  present_[digest_of("pack jupyter")] = {{0, kSpan}};
  plan(200);
  EXPECT_THAT(words(), ElementsAre("one python: here 0", "one jupyter: fetch 100", "one often: part 100",
                                   "one rare: too large 100", "one often: too large 300", "one rare: too large 100"));
}

TEST_F(PrewarmPlanTest, WithoutUseTheSmallestPackOfAnImportFirstAndOneForTwoImages) {
  const Pack large{.name = "large", .is_program = false, .trigger = spans(a_, 0, 1), .map = map_of("large", 4)};
  const Pack small{.name = "small", .is_program = false, .trigger = spans(a_, 1, 2), .map = map_of("small", 1)};
  image("one", {a_}).packs = {large, small};
  image("two", {b_, a_}).packs = {large};
  plan(1000);
  EXPECT_THAT(words(), ElementsAre("one small: fetch 100", "one large: fetch 400", "two large: here 0"));
}

TEST_F(PrewarmPlanTest, WhatAPackageBringsMakesTheNextCheaper) {
  // By itself "b" is worth less a byte than "c"; with what "a" brings it is worth more.
  image("one", {a_}).packages = {
      {"a", 100, {spans(a_, 0, 4)}}, {"b", 10, {spans(a_, 1, 5)}}, {"c", 6, {spans(a_, 10, 12)}}};
  plan(10'000);
  EXPECT_THAT(words(), ElementsAre("one a: fetch 400", "one b: fetch 100", "one c: fetch 200"));
}

TEST_F(PrewarmPlanTest, NothingThatIsColdIsFetchedForItsImage) {
  auto& one = image("one", {a_});
  one.cold.layers = {{.layer_digest = a_->layer_digest, .ranges = {{kSpan, 2 * kSpan}, {10 * kSpan, 500}}}};
  one.profile = profile_of({spans(a_, 0, 4)});
  one.packages = {{"cold", 5, {spans(a_, 1, 3)}}, {"half", 4, {spans(a_, 2, 3), spans(a_, 10, 11)}}};
  plan(10'000);
  EXPECT_THAT(words(), ElementsAre("one profile: fetch 200", "one cold: here 0", "one half: fetch 100"));
  EXPECT_THAT(plan_.items[0].ranges, ElementsAre(spans(a_, 0, 1), spans(a_, 3, 4)));
}

TEST_F(PrewarmPlanTest, CountsWindowsByBlocksAndGapsThatAreFetchedForNothing) {
  auto gzip = map_of("gzip", 20, LayerFormat::kGzip);
  gzip->windows_bytes = 19 * 40;
  for (std::size_t i = 1; i < 20; ++i) gzip->spans[i].window = {.offset = (i - 1) * 40, .length = 40};
  auto& one = image("one", {gzip});
  options_.window_block_bytes = 64;
  one.packages = {{"first", 1, {spans(gzip, 1, 2), spans(gzip, 3, 4)}}};  // windows at 0 and 80: blocks 0 and 1
  plan(10'000);
  EXPECT_EQ(plan_.download_bytes, 200u + 128);
  options_.merge_gap_bytes = 100;  // span 2 lies between
  plan(10'000);
  EXPECT_EQ(plan_.download_bytes, 200u + 128 + 100);
  one.packages.push_back(
      {"second",
       1,
       {spans(gzip, 2, 3)}});  // its window lies in blocks 0 and 1, which come before; smaller, it goes first
  plan(10'000);
  EXPECT_THAT(words(), ElementsAre("one second: fetch 228", "one first: fetch 300")) << "blocks are counted once";
  options_.whole_windows_bytes = 760;
  plan(10'000);
  EXPECT_EQ(plan_.items[0].download_bytes, 100u + 760);
}

TEST_F(PrewarmPlanTest, ALayerOfOneFrameIsTakenWhole) {
  const auto single = map_of("single", 20, LayerFormat::kZstdSingle);
  image("one", {single}).profile = profile_of({spans(single, 3, 4)});
  plan(1999);
  EXPECT_THAT(words(), ElementsAre("one profile: too large 2000"));
  plan(2000);
  EXPECT_THAT(words(), ElementsAre("one profile: fetch 2000"));
  EXPECT_THAT(plan_.items[0].ranges, ElementsAre(spans(single, 0, 20)));
}

TEST_F(PrewarmPlanTest, ContentOutsideOfTheLayersIsRefused) {
  auto& one = image("one", {a_});
  one.packages = {{"outside", 1, {spans(a_, 19, 21)}}};
  EXPECT_THROW(plan(1000), CorruptData);
  one.packages = {{"elsewhere", 1, {spans(b_, 0, 1)}}};
  EXPECT_THROW(plan(1000), CorruptData);
}

}  // namespace
}  // namespace varve::prewarm
