#include "indexer/pack_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/base/errors.h"

namespace varve::indexer {
namespace {

using index::FlatEntry;
using index::FlatTree;
using index::Tier;
using testing::ElementsAre;
using testing::HasSubstr;

void add_parents(FlatTree& tree, const std::string& path) {
  tree.entries.try_emplace("");
  for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
    tree.entries.try_emplace(path.substr(0, slash));
}

FlatEntry& put(FlatTree& tree, const std::string& path, std::uint64_t size = 100,
               std::string_view content = "content") {
  add_parents(tree, path);
  auto& entry = tree.entries[path];
  entry = FlatEntry();
  entry.type = FileType::kRegular;
  entry.mode = 0644;
  entry.size = size;
  if (size != 0) entry.content_digest = digest_of(std::string(content) + path);
  return entry;
}

void put_link(FlatTree& tree, const std::string& path, const std::string& first) {
  const auto target = tree.entries.at(first);
  add_parents(tree, path);
  tree.entries[path] = target;
  tree.entries[path].link_of = first;
}

index::Placement placement_of(std::map<std::string, std::vector<std::string>> components) {
  index::Placement placement;
  for (auto& [name, paths] : components)
    placement.components.push_back({.name = name, .version = "1", .tier = Tier::kHot, .paths = std::move(paths)});
  return placement;
}

std::map<std::string, const PackUnit*> by_name(const PackUnits& units) {
  std::map<std::string, const PackUnit*> found;
  for (const auto& unit : units.units) found[unit.facts.name] = &unit;
  return found;
}

// "dir!" carries its own time, "dir?" a neutral one, "file -> first" is a hard link.
std::vector<std::string> listing(const PackUnit& unit) {
  std::vector<std::string> lines;
  for (const auto& entry : unit.entries) {
    auto line = std::string(entry.path);
    if (entry.entry != nullptr && entry.entry->type == FileType::kDirectory) line += entry.neutral_time ? "?" : "!";
    if (!entry.link_of.empty()) line += " -> " + std::string(entry.link_of);
    lines.push_back(std::move(line));
  }
  return lines;
}

PackUnits cut(const FlatTree& tree, const index::Placement& placement, const PackLimits& limits = {}) {
  return cut_into_units(tree, placement, nullptr, limits);
}

// Every file once, in a unit whose entries are in order, links after what they lead to.
void expect_whole(const PackUnits& units, const FlatTree& tree) {
  std::multiset<std::string_view> seen;
  for (const auto& unit : units.units) {
    EXPECT_TRUE(std::ranges::is_sorted(unit.entries, {}, &UnitEntry::path)) << unit.facts.name;
    std::set<std::string_view> here;
    for (const auto& entry : unit.entries) {
      if (!entry.link_of.empty()) {
        EXPECT_TRUE(here.contains(entry.link_of)) << entry.path;
      }
      EXPECT_TRUE(here.insert(entry.path).second) << entry.path;
      if (entry.entry == nullptr || entry.entry->type != FileType::kDirectory) seen.insert(entry.path);
    }
  }
  for (const auto& [path, entry] : tree.entries)
    if (entry.type != FileType::kDirectory) {
      EXPECT_EQ(seen.count(path), 1u) << path;
    }
}

TEST(PackUnits, EveryFileIsInOneUnitWithTheDirectoriesAboveIt) {
  FlatTree tree;
  put(tree, "usr/lib/site/a/x.py");
  put(tree, "usr/lib/site/a/y.py");
  put(tree, "usr/lib/site/a-1.dist-info/RECORD");
  put(tree, "usr/lib/site/b.py");
  put(tree, "etc/passwd");
  tree.entries["empty"] = FlatEntry();
  tree.entries["usr/lib"].implied = true;
  const auto units =
      cut(tree,
          placement_of({{"pip:a", {"usr/lib/site/a-1.dist-info/RECORD", "usr/lib/site/a/x.py", "usr/lib/site/a/y.py"}},
                        {"pip:b", {"usr/lib/site/b.py"}}}));
  const auto unit = by_name(units);
  EXPECT_THAT(listing(*unit.at("pip:a")),
              ElementsAre("usr?", "usr/lib/site?", "usr/lib/site/a!", "usr/lib/site/a-1.dist-info!",
                          "usr/lib/site/a-1.dist-info/RECORD", "usr/lib/site/a/x.py", "usr/lib/site/a/y.py"));
  EXPECT_THAT(listing(*unit.at("pip:b")), ElementsAre("usr?", "usr/lib/site?", "usr/lib/site/b.py"));
  EXPECT_THAT(listing(*unit.at("system")), ElementsAre("etc!", "etc/passwd"));
  EXPECT_EQ(unit.at("system")->facts.tier, Tier::kSystem);
  EXPECT_THAT(units.directories, ElementsAre("", "empty", "usr", "usr/lib/site"));
  expect_whole(units, tree);
}

TEST(PackUnits, ADigestTellsEverythingThatIsWritten) {
  const auto digest_after = [](const std::function<void(FlatTree&)>& change) {
    FlatTree tree;
    put(tree, "d/a");
    put(tree, "d/b");
    put_link(tree, "d/c", "d/b");
    put(tree, "e/other");
    change(tree);
    return by_name(cut(tree, placement_of({{"one", {"d/a", "d/b", "d/c"}}, {"two", {"e/other"}}})))
        .at("one")
        ->facts.content;
  };
  std::set<Digest> seen{digest_after([](FlatTree&) {})};
  const auto differs = [&](const std::function<void(FlatEntry&)>& change) {
    return seen.insert(digest_after([&](FlatTree& tree) { change(tree.entries["d/a"]); })).second;
  };
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.mode = 0600; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.uid = 1; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.gid = 1; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.mtime_seconds = 1; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.mtime_nanoseconds = 1; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.xattrs["user.a"] = "b"; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.xattrs["user.ab"] = ""; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.size = 101; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.content_digest = digest_of("new"); }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.type = FileType::kCharDevice; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.device_major = 5; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.device_minor = 5; }));
  EXPECT_TRUE(differs([](FlatEntry& entry) { entry.symlink_target = "x"; }));
  EXPECT_TRUE(seen.insert(digest_after([](FlatTree& tree) { tree.entries["d/c"].link_of = ""; })).second);
  EXPECT_TRUE(seen.insert(digest_after([](FlatTree& tree) { tree.entries["d"].mtime_seconds = 7; })).second);
  EXPECT_TRUE(seen.insert(digest_after([](FlatTree& tree) { tree.entries["d"].mode = 0700; })).second);
  // What is nobody's business here: other units, and the place in the old image.
  EXPECT_FALSE(seen.insert(digest_after([](FlatTree& tree) { tree.entries["e/other"].mode = 0600; })).second);
  EXPECT_FALSE(differs([](FlatEntry& entry) { entry.layer = 3; }));
}

TEST(PackUnits, AnotherDistributionInTheSameFolderLeavesTheDigestAsItIs) {
  FlatTree tree;
  put(tree, "site/a/x.py");
  put(tree, "site/b/x.py");
  auto placement = placement_of({{"pip:a", {"site/a/x.py"}}, {"pip:b", {"site/b/x.py"}}});
  const auto before = by_name(cut(tree, placement)).at("pip:a")->facts.content;
  put(tree, "site/c/x.py");
  tree.entries["site"].mtime_seconds = 1'700'000'000;  // as installing leaves it
  placement.components.push_back({.name = "pip:c", .version = "1", .tier = Tier::kCold, .paths = {"site/c/x.py"}});
  EXPECT_EQ(by_name(cut(tree, placement)).at("pip:a")->facts.content, before);
  tree.entries["site"].mode = 0700;
  EXPECT_NE(by_name(cut(tree, placement)).at("pip:a")->facts.content, before);
}

TEST(PackUnits, NamesOfOneInodeStayTogether) {
  FlatTree tree;
  put(tree, "a/first");
  put_link(tree, "b/second", "a/first");
  put_link(tree, "c/third", "a/first");
  auto placement = placement_of({{"one", {"a/first"}}, {"two", {"b/second", "c/third"}}});
  auto units = cut(tree, placement);
  EXPECT_THAT(listing(*by_name(units).at("one")),
              ElementsAre("a!", "a/first", "b!", "b/second -> a/first", "c!", "c/third -> a/first"));
  EXPECT_EQ(units.units.size(), 1u);
  // The first name goes: the next one is written with the content.
  placement.removed = {"a/first"};
  units = cut(tree, placement);
  EXPECT_THAT(listing(*by_name(units).at("two")), ElementsAre("b!", "b/second", "c!", "c/third -> b/second"));
}

TEST(PackUnits, WhatIsRemovedTakesItsEmptyFoldersAlong) {
  FlatTree tree;
  put(tree, "site/gone/sub/x.py");
  put(tree, "site/half/x.py");
  put(tree, "site/half/y.py");
  tree.entries["site/half/cache"] = FlatEntry();
  put(tree, "site/kept/z");
  tree.entries["site/kept/cache"] = FlatEntry();
  auto placement = placement_of({});
  placement.removed = {"site/gone/sub/x.py", "site/half/x.py", "site/half/y.py"};
  placement.added.push_back({.path = "site/stub.py", .content = "raise ImportError", .mode = 0644, .mtime_seconds = 5});
  const auto units = cut(tree, placement);
  EXPECT_THAT(listing(*by_name(units).at("system")), ElementsAre("site?", "site/kept!", "site/kept/z"));
  EXPECT_THAT(listing(*by_name(units).at("added")), ElementsAre("site?", "site/stub.py"));
  // A folder that was empty before is kept, and what it lies in.
  EXPECT_THAT(units.directories, ElementsAre("", "site", "site/half", "site/half/cache", "site/kept/cache"));
}

TEST(PackUnits, AnAddedFileReplacesOneOfTheTree) {
  FlatTree tree;
  put(tree, "site/a/__init__.py");
  put(tree, "site/a/b.py");
  auto placement = placement_of({{"pip:a", {"site/a/__init__.py", "site/a/b.py"}}});
  placement.removed = {"site/a/__init__.py", "site/a/b.py"};
  placement.added.push_back({.path = "site/a/__init__.py", .content = "stub", .mode = 0644, .mtime_seconds = 5});
  auto units = cut(tree, placement);
  ASSERT_EQ(units.units.size(), 1u);
  EXPECT_THAT(listing(units.units[0]), ElementsAre("site!", "site/a!", "site/a/__init__.py"));
  const auto before = units.units[0].facts.content;
  placement.added[0].content = "stuB";
  EXPECT_NE(cut(tree, placement).units[0].facts.content, before);
}

TEST(PackUnits, WhatStaysBeneathIsInNoUnit) {
  FlatTree tree;
  put(tree, "bin/sh");
  put(tree, "bin/tool");
  put(tree, "etc/passwd");
  put(tree, "huge", 1 << 20).content_digest = Digest();
  const auto units = cut_into_units(tree, placement_of({{"pip:tool", {"bin/tool"}}}),
                                    [](std::string_view path) { return path != "bin/tool"; }, {});
  ASSERT_EQ(units.units.size(), 1u);
  EXPECT_THAT(listing(units.units[0]), ElementsAre("bin?", "bin/tool"));
  EXPECT_THAT(units.directories, ElementsAre("", "bin", "etc"));
  EXPECT_THROW(cut(tree, placement_of({})), Unsupported);
}

TEST(PackUnits, ALargeComponentIsCutBetweenFiles) {
  FlatTree tree;
  std::vector<std::string> paths;
  for (int i = 1000; i < 2000; ++i) paths.push_back("models/f" + std::to_string(i));
  for (const auto& path : paths) put(tree, path, 10'000);
  put_link(tree, "models/zz", "models/f1000");
  paths.emplace_back("models/zz");
  const PackLimits limits{.max_layers = 127, .max_layer_bytes = 1'000'000, .min_layer_bytes = 1};
  const auto units = cut(tree, placement_of({{"folder:models", paths}}), limits);
  EXPECT_GE(units.units.size(), 11u);
  EXPECT_LE(units.units.size(), 44u);
  expect_whole(units, tree);
  std::set<std::string> names;
  for (const auto& unit : units.units) {
    EXPECT_LE(unit.facts.bytes, limits.max_layer_bytes);
    EXPECT_THAT(unit.facts.name, HasSubstr("folder:models//"));
    EXPECT_TRUE(names.insert(unit.facts.name).second);
  }
  // Cuts hold on to names: a file more at the front leaves most pieces as they are.
  std::set<Digest> before;
  for (const auto& unit : units.units) before.insert(unit.facts.content);
  put(tree, "models/f1000a", 10'000);
  paths.emplace_back("models/f1000a");
  std::size_t same = 0;
  const auto again = cut(tree, placement_of({{"folder:models", paths}}), limits);
  for (const auto& unit : again.units) same += before.contains(unit.facts.content);
  EXPECT_GE(same * 10, units.units.size() * 7);
}

TEST(PackUnits, SaysWhatCannotBe) {
  FlatTree tree;
  put(tree, "a");
  EXPECT_THROW(cut(tree, placement_of({{"one", {"a"}}, {"two", {"a"}}})), UsageError);
  auto twice = placement_of({{"one", {"a"}}});
  twice.components.push_back(twice.components[0]);
  EXPECT_THROW(cut(tree, twice), UsageError);
}

}  // namespace
}  // namespace varve::indexer
