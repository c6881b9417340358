#include "indexer/packs/group_starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "indexer/packs/made_packs.h"

namespace varve::indexer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = index::StartGroup::Kind;
using Turn = StartReads::Turn;

class GroupStarts : public testing::Test {
 protected:
  GroupStarts() : files_({"base", "upper"}) {
    for (const auto* path : {"bin/python", "lib/json.pyc", "etc/group", "np/init", "np/core", "pd/init", "pd/core",
                             "kernel/init", "kernel/core", "tool/init"})
      files_.add(path, std::string(100'000, 'x'), path[0] == 'p' ? 1 : 0);
  }

  StartReads start(const std::string& name, const std::vector<std::string>& paths, Turn turn = Turn::kImport) const {
    StartReads reads{
        .turn = turn, .kind = turn == Turn::kImport ? Kind::kImport : Kind::kProgram, .name = name, .reads = {}};
    for (const auto& path : paths) reads.reads.push_back(part_of(files_, path));
    return reads;
  }

  std::vector<std::string> grouped(std::vector<StartReads> starts, const std::vector<GroupedStart>& there = {}) const {
    const FilePlaces places(files_.tree, first_places(files_.layers));
    std::vector<std::string> texts;
    for (const auto& group : group_starts(std::move(starts), places, there)) {
      auto text = group.name + " at " + *places.at(group.trigger.layer, group.trigger.stream_range.offset)->path + ":";
      for (const auto& range : group.pack)
        for (const auto& piece : places.pieces(range)) text += " " + *piece.place->path;
      texts.push_back(text);
    }
    return texts;
  }

  test::MadeFiles files_;
};

TEST_F(GroupStarts, APackHasWhatNoPackThatItsStartTriggersBrings) {
  EXPECT_THAT(grouped({start("pd", {"bin/python", "lib/json.pyc", "pd/init", "np/init", "np/core", "pd/core"}),
                       start("np", {"bin/python", "lib/json.pyc", "np/init", "np/core"}),
                       start("tool", {"bin/python", "lib/json.pyc", "tool/init"}),
                       start("python", {"bin/python"}, Turn::kPython)}),
              ElementsAre("python at bin/python: bin/python", "tool at tool/init: lib/json.pyc tool/init",
                          "np at np/init: lib/json.pyc np/init np/core",
                          "pd at pd/init: lib/json.pyc pd/init pd/core"));  // json before np's trigger
}

TEST_F(GroupStarts, WhatAStartReadsIsInItsPackOrInOneThatItTriggers) {
  // np reads a file of pd, which alone does not make it read pd's trigger, nor pd np's.
  std::vector<StartReads> starts{start("np", {"np/init", "pd/core"}), start("pd", {"pd/init", "pd/core", "np/core"}),
                                 start("both", {"np/core", "np/init", "pd/core", "pd/init", "kernel/init"})};
  const FilePlaces places(files_.tree, first_places(files_.layers));
  const auto groups = group_starts(starts, places);
  ASSERT_EQ(groups.size(), 3U);
  for (const auto& one : starts) {
    StreamRanges reads, brought;
    reads.add(one.reads);
    for (const auto& group : groups)
      if (reads.touches(group.trigger)) brought.add(group.pack);
    for (const auto& range : one.reads) EXPECT_THAT(brought.without(range), IsEmpty()) << one.name;
  }
}

TEST_F(GroupStarts, OrderOfTheListDoesNotMatter) {
  std::vector<StartReads> starts{start("a", {"np/init", "np/core"}), start("b", {"pd/init", "pd/core"}),
                                 start("c", {"np/init", "pd/init", "kernel/init"})};
  const auto first = grouped(starts);
  std::ranges::reverse(starts);
  EXPECT_EQ(grouped(starts), first);
}

TEST_F(GroupStarts, WhatOthersReadForTheirOwnSakeIsNoTrigger) {
  EXPECT_THAT(
      grouped({start("kernel", {"bin/python", "lib/json.pyc", "kernel/init", "kernel/core"}, Turn::kProgramOfImage),
               start("np", {"bin/python", "lib/json.pyc", "np/init", "np/core"})}),
      ElementsAre("kernel at kernel/init: bin/python lib/json.pyc kernel/init kernel/core",
                  "np at np/init: bin/python lib/json.pyc np/init np/core"));
}

TEST_F(GroupStarts, SettingsOfTheSystemAreNoTriggerWhileThereIsAnother) {
  EXPECT_THAT(grouped({start("python", {"etc/group", "bin/python"}, Turn::kPython)}),
              ElementsAre("python at bin/python: etc/group bin/python"));
  EXPECT_THAT(grouped({start("id", {"etc/group"}, Turn::kPython)}), ElementsAre("id at etc/group: etc/group"));
}

TEST_F(GroupStarts, AStartThatAddsNothingOrLittleMakesNoGroup) {
  auto little = start("little", {"bin/python", "np/init"});
  little.reads.push_back(part_of(files_, "pd/init", 0, kLeastPackBytes - 1));
  EXPECT_THAT(grouped({start("np", {"np/init"}), start("python", {"bin/python"}, Turn::kPython),
                       start("same", {"bin/python", "np/init"}), little}),
              ElementsAre("python at bin/python: bin/python", "np at np/init: np/init"));
}

TEST_F(GroupStarts, FurtherBytesOfFilesThatOthersReadTriggerByThemselves) {
  auto head = start("head", {});
  head.reads = {part_of(files_, "np/core", 0, 40'000)};
  auto tail = start("tail", {});
  tail.reads = {part_of(files_, "np/core", 0, 10'000), part_of(files_, "np/core", 40'000)};
  const FilePlaces places(files_.tree, first_places(files_.layers));
  const auto groups = group_starts({head, tail}, places);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[1].trigger, part_of(files_, "np/core", 40'000));
}

TEST_F(GroupStarts, PacksThatAreThereAreNotMadeAgain) {
  const GroupedStart there{.kind = Kind::kImport,
                           .name = "np",
                           .trigger = part_of(files_, "np/init"),
                           .pack = {part_of(files_, "np/init"), part_of(files_, "np/core")}};
  EXPECT_THAT(grouped({start("pd", {"np/init", "np/core", "pd/init"})}, {there}),
              ElementsAre("pd at pd/init: pd/init"));
}

TEST_F(GroupStarts, WhatOneRecordingAloneHasStaysOut) {
  const FilePlaces places(files_.tree, first_places(files_.layers));
  const auto common = common_reads(
      {part_of(files_, "pd/init"), part_of(files_, "np/init", 0, 5000)},
      {part_of(files_, "np/init", 4096, 8192), part_of(files_, "np/core"), part_of(files_, "pd/init")}, places);
  EXPECT_THAT(common, ElementsAre(part_of(files_, "pd/init"), part_of(files_, "np/init", 4096, 904)));
}

TEST_F(GroupStarts, OrderWithinAFileIsNotOfChance) {
  const FilePlaces places(files_.tree, first_places(files_.layers));
  const auto a = part_of(files_, "np/init", 0, 4096), b = part_of(files_, "np/init", 4096, 4096),
             between = part_of(files_, "pd/init");
  const std::vector<PackRange> one{b, between, a}, other{a, between, b};
  EXPECT_EQ(common_reads(one, other, places), common_reads(other, one, places));
}

TEST_F(GroupStarts, HeadersOfTarAreLeftOutAndPaddingIsNot) {
  files_.add("short", "12345");
  const FilePlaces places(files_.tree, first_places(files_.layers));
  const auto file = files_.place("short");
  const PackRange read{0, {.offset = file.offset - 512, .length = 1024}};
  EXPECT_THAT(common_reads({read}, {read}, places), ElementsAre(PackRange{0, {.offset = file.offset, .length = 512}}));
}

TEST_F(GroupStarts, ALayerThatTheImageRepeatsIsOne) {
  auto layers = files_.layers;
  layers.push_back(layers[0]);
  EXPECT_THAT(first_places(layers), ElementsAre(0, 1, 0));
}

TEST(StreamRangesTest, AreASet) {
  StreamRanges set;
  set.add(PackRange{1, {10, 10}});
  set.add(PackRange{1, {30, 10}});
  set.add(PackRange{1, {19, 11}});  // joins them
  set.add(PackRange{2, {0, 5}});
  EXPECT_THAT(set.within({1, {0, 100}}), ElementsAre(PackRange{1, {10, 30}}));
  EXPECT_THAT(set.without({1, {0, 100}}), ElementsAre(PackRange{1, {0, 10}}, PackRange{1, {40, 60}}));
  EXPECT_THAT(set.without({2, {2, 3}}), IsEmpty());
  EXPECT_FALSE(set.touches({2, {5, 100}}));
  EXPECT_FALSE(set.touches({0, {0, 100}}));
  EXPECT_TRUE(set.touches({1, {39, 1}}));
}

}  // namespace
}  // namespace varve::indexer
