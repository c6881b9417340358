#include "core/index/format/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/two_layers.h"

namespace varve::index {
namespace {

using test::kA;
using test::kB;
using test::map_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As the words of a test: ranges of one layer, a millisecond apart.
Profile profile_of(const std::vector<ByteRange>& ranges) {
  Profile profile{.recordings = 1, .layers = {kA}, .ranges = {}};
  for (const auto& range : ranges)
    profile.ranges.push_back({.layer = 0, .stream_range = range, .ms = profile.ranges.size()});
  return profile;
}

std::vector<ByteRange> ranges_of(const Profile& profile) {
  std::vector<ByteRange> ranges;
  for (const auto& range : profile.ranges) ranges.push_back(range.stream_range);
  return ranges;
}

TEST(ProfileBuilder, KeepsWhatWasTouchedFirstInTheOrderOfTouching) {
  ProfileBuilder builder;
  builder.touch(kB, {1000, 100}, 5);
  builder.touch(kA, {0, 50}, 6);
  builder.touch(kB, {1050, 100}, 7);  // half of it is known
  builder.touch(kB, {900, 400}, 9);   // before and behind what is known
  builder.touch(kB, {0, 0}, 10);
  builder.touch(kA, {10, 20}, 11);  // nothing new
  const auto profile = builder.profile();
  EXPECT_THAT(profile.layers, ElementsAre(kA, kB));
  EXPECT_THAT(profile.ranges, ElementsAre(ProfileRange{1, {1000, 100}, 5, 1}, ProfileRange{0, {0, 50}, 6, 1},
                                          ProfileRange{1, {1100, 50}, 7, 1}, ProfileRange{1, {900, 100}, 9, 1},
                                          ProfileRange{1, {1150, 150}, 9, 1}));
  EXPECT_EQ(Profile::decode(profile.encode(), "again"), profile);
  EXPECT_EQ(profile.bytes(), 450u);
}

TEST(ProfileBuilder, JoinsWhatIsReadInOneGo) {
  ProfileBuilder builder;
  for (std::uint64_t at = 0; at < 1000; at += 100) builder.touch(kA, {at, 100}, at);
  EXPECT_THAT(builder.profile().ranges, ElementsAre(ProfileRange{0, {0, 1000}, 0, 1}));
}

TEST(ProfileBuilder, NeverSaysAByteTwiceNorForgetsOne) {
  ProfileBuilder builder;
  std::vector<bool> touched(4096);
  std::uint64_t state = 1;
  for (int i = 0; i < 3000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t offset = (state >> 33) % 4000, length = (state >> 20) % 40;
    builder.touch(kA, {offset, length}, std::uint64_t(i));
    for (auto at = offset; at < offset + length; ++at) touched[at] = true;
  }
  const auto profile = builder.profile();
  EXPECT_EQ(Profile::decode(profile.encode(), "again"), profile) << "encode() refuses what overlaps";
  EXPECT_EQ(profile.bytes(), std::uint64_t(std::ranges::count(touched, true)));
}

TEST(ProfileBuilder, ANothingIsAProfileToo) {
  const auto profile = ProfileBuilder().profile();
  EXPECT_THAT(profile.ranges, IsEmpty());
  EXPECT_EQ(Profile::decode(profile.encode(), "empty"), profile);
}

TEST(Profile, RefusesWhatCannotBe) {
  const auto good = profile_of({{0, 10}, {100, 10}});
  const auto refused = [&](auto&& change) {
    auto profile = good;
    change(profile);
    EXPECT_THROW(profile.encode(), CorruptData);
  };
  refused([](Profile& p) { p.recordings = 0; });
  refused([](Profile& p) { p.ranges[1].stream_range = {9, 10}; });
  refused([](Profile& p) { p.ranges[1].stream_range = {0, 10}; });
  refused([](Profile& p) { p.ranges[1].stream_range.length = 0; });
  refused([](Profile& p) { p.ranges[1].stream_range = {kMaxStreamBytes, 1}; });
  refused([](Profile& p) { p.ranges[1].layer = 1; });
  refused([](Profile& p) { p.layers = {kA, kB}; });
  refused([](Profile& p) { p.layers = {kA, kA}; });
  refused([](Profile& p) { p.ranges[0].ms = 2; });
  refused([](Profile& p) { p.ranges[1].ms = kMaxProfileMs + 1; });
  refused([](Profile& p) { p.ranges[0].recordings = 2; });
  refused([](Profile& p) { p.ranges[0].recordings = 0; });
}

TEST(Profile, SaysWhichLayerARangeLiesOutsideOf) {
  const auto profile = profile_of({{0, 10}, {90, 10}});
  profile.check({map_of(kB, 5), map_of(kA, 100)}, "profile");
  EXPECT_THROW(profile.check({map_of(kA, 99)}, "profile"), CorruptData);
  EXPECT_THROW(profile.check({map_of(kB, 100)}, "profile"), CorruptData);
}

TEST(Profile, OfAnotherVersionKeepsWhatTheLayersShare) {
  ProfileBuilder builder;
  builder.touch(kB, {0, 10}, 0);
  builder.touch(kA, {0, 20}, 1);
  builder.touch(kB, {40, 10}, 2);
  const auto kept = builder.profile().of_layers({map_of(kB, 100)});
  EXPECT_THAT(kept.layers, ElementsAre(kB));
  EXPECT_THAT(ranges_of(kept), ElementsAre(ByteRange{0, 10}, ByteRange{40, 10}));
  kept.check({map_of(kB, 100)}, "kept");
  EXPECT_THAT(builder.profile().of_layers({map_of(digest_of("c"), 100)}).layers, IsEmpty());
}

TEST(MergeProfiles, OfOneIsThatOne) {
  const auto profile = profile_of({{500, 10}, {0, 10}, {100, 400}});
  EXPECT_EQ(merge_profiles({profile}, 0), profile);
}

TEST(MergeProfiles, OrderByMedianPositionAndCountWhoHasWhat) {
  // Two of three begin with 0, one with 1000; the last piece is one's alone.
  const auto a = profile_of({{0, 100}, {1000, 100}, {2000, 100}});
  const auto b = profile_of({{0, 100}, {1000, 100}, {5000, 100}});
  const auto c = profile_of({{1000, 100}, {0, 100}, {2000, 100}});
  const auto merged = merge_profiles({a, b, c}, 0);
  EXPECT_EQ(merged.recordings, 3u);
  EXPECT_THAT(merged.ranges, ElementsAre(ProfileRange{0, {0, 100}, 0, 3}, ProfileRange{0, {1000, 100}, 1, 3},
                                         ProfileRange{0, {2000, 100}, 2, 2}, ProfileRange{0, {5000, 100}, 2, 1}));
  EXPECT_EQ(merge_profiles({c, a, b}, 0), merged) << "whatever the order of the inputs";
  EXPECT_EQ(Profile::decode(merged.encode(), "merged"), merged);
  EXPECT_THAT(ranges_of(merge_profiles({a, b, c}, 0.5)),
              ElementsAre(ByteRange{0, 100}, ByteRange{1000, 100}, ByteRange{2000, 100}));
  EXPECT_THAT(ranges_of(merge_profiles({a, b, c}, 1)), ElementsAre(ByteRange{0, 100}, ByteRange{1000, 100}));
}

TEST(MergeProfiles, CutWhereTheyDiffer) {
  const auto merged = merge_profiles({profile_of({{0, 100}}), profile_of({{50, 100}})}, 0);
  // Of the second 50..100 comes at 0, of the first at 50: the lower of two is the median.
  EXPECT_EQ(merged.bytes(), 150u);
  EXPECT_THAT(merged.ranges, ElementsAre(ProfileRange{0, {0, 50}, 0, 1}, ProfileRange{0, {50, 50}, 0, 2},
                                         ProfileRange{0, {100, 50}, 0, 1}));
}

TEST(MergeProfiles, AMergedProfileCountsAsManyRecordings) {
  const auto common = profile_of({{0, 100}, {1000, 100}});
  const auto other = profile_of({{1000, 100}, {0, 100}});
  const auto two = merge_profiles({common, common}, 0);
  const auto merged = merge_profiles({two, other}, 0);
  EXPECT_EQ(merged.recordings, 3u);
  EXPECT_THAT(ranges_of(merged), ElementsAre(ByteRange{0, 100}, ByteRange{1000, 100}));
  EXPECT_EQ(merge_profiles({common, common, other}, 0), merged);
}

TEST(MergeProfiles, OfNoneIsTheUsersMistake) { EXPECT_THROW(merge_profiles({}, 0), UsageError); }

TEST(MergeProfiles, OfMoreRecordingsThanFitAreRefused) {
  auto most = profile_of({{0, 1}});
  most.recordings = kMaxProfileRecordings;
  EXPECT_THROW(merge_profiles({most, most}, 0), Unsupported);
}

TEST(Profile, TheLargestFitsItsBlob) {
  Profile profile{.recordings = kMaxProfileRecordings, .layers = {kA}, .ranges = {}};
  const auto first = kMaxStreamBytes - 2 * kMaxProfileRanges;
  for (std::uint64_t i = 0; i < kMaxProfileRanges; ++i)
    profile.ranges.push_back({.layer = 0, .stream_range = {first + 2 * i, 1}, .ms = 0, .recordings = 1});
  const auto bytes = profile.encode();
  EXPECT_LE(bytes.size(), kMaxProfileBlobBytes);
  EXPECT_EQ(Profile::decode(bytes, "most"), profile);
  profile.ranges.push_back({.layer = 0, .stream_range = {0, 1}, .ms = 0, .recordings = 1});
  EXPECT_THROW(profile.encode(), CorruptData);
  // The encoder's limit holds for what comes from outside as well: the number of ranges, and more of them than bytes.
  Bytes more = to_bytes(as_bytes("VRVPRF1\n"));
  for (const auto byte : {1, 0, 0xc1, 0x84, 0x3d})
    more.push_back(std::byte(byte));  // 1 recording, no layer, 1,000,001 ranges
  try {
    Profile::decode(more, "more");
    FAIL();
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), HasSubstr("too many ranges"));
  }
  more[10] = std::byte(0xc0);
  try {
    Profile::decode(more, "more");
    FAIL();
  } catch (const CorruptData& error) {
    EXPECT_THAT(error.what(), HasSubstr("more ranges than bytes"));
  }
}

}  // namespace
}  // namespace varve::index
