#include "core/index/merge/flat_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::index {
namespace {

using ::testing::ElementsAre;

LayerEntry flat_entry(FileType type, std::string path, std::string target = {}) {
  LayerEntry entry;
  entry.type = type;
  entry.path = std::move(path);
  entry.link_target = std::move(target);
  entry.mode = 0755;
  return entry;
}

LayerEntry file(std::string path, std::string_view content) {
  auto entry = flat_entry(FileType::kRegular, std::move(path));
  entry.size = content.size();
  if (!content.empty()) {
    entry.runs.push_back({.file_offset = 0, .stream_offset = 512, .length = content.size()});
    entry.content_digest = digest_of(content);
  }
  return entry;
}

FlatTree flat(std::vector<std::vector<LayerEntry>> layers) {
  std::vector<LayerEntries> all;
  for (auto& layer : layers) all.push_back({.layer_digest = Digest(), .entries = std::move(layer)});
  return flatten(std::move(all));
}

std::vector<std::string> paths(const FlatTree& tree) {
  std::vector<std::string> list;
  for (const auto& [path, entry] : tree.entries) list.push_back(path);
  return list;
}

TEST(FlatTree, HoldsWhatIsVisibleInByteOrderOfWholePaths) {
  const auto tree = flat({{file("a/b", "x"), file("a-b", "y"), file("gone", "z")},
                          {flat_entry(FileType::kRegular, ".wh.gone"), file("a/b", "new")}});
  EXPECT_THAT(paths(tree), ElementsAre("", "a", "a-b", "a/b"));
  const auto& replaced = tree.entries.at("a/b");
  EXPECT_EQ(replaced.layer, 1u);
  EXPECT_EQ(replaced.content_digest, digest_of(std::string_view("new")));
  EXPECT_TRUE(tree.entries.at("a").implied);
  EXPECT_EQ(tree.layers, 2u);
}

TEST(FlatTree, NamesOfOneInodePointToTheFirstInByteOrder) {
  const auto tree = flat(
      {{file("d/z", "x"), flat_entry(FileType::kHardLink, "d-a", "d/z"), flat_entry(FileType::kHardLink, "e", "d/z")}});
  EXPECT_EQ(tree.entries.at("d-a").link_of, "");
  EXPECT_EQ(tree.entries.at("d/z").link_of, "d-a");
  EXPECT_EQ(tree.entries.at("e").link_of, "d-a");
  for (const auto* name : {"d-a", "d/z", "e"})
    EXPECT_EQ(tree.entries.at(name).content_digest, digest_of(std::string_view("x"))) << name;
}

TEST(FlatTree, HasTheElfFactsOfTheFilesThatAreVisible) {
  const auto library = [](std::string path, const char* soname) {
    auto entry = file(std::move(path), "content");
    ElfFacts facts;
    facts.soname = soname;
    entry.elf = std::make_shared<const ElfFacts>(facts);
    return entry;
  };
  std::vector<LayerEntries> layers;
  layers.push_back(
      {.layer_digest = Digest(),
       .entries = {library("z.so", "old"), flat_entry(FileType::kHardLink, "a.so", "z.so"), file("text", "x")},
       .has_elf_facts = true});
  layers.push_back({.layer_digest = Digest(), .entries = {library("z.so", "new")}, .has_elf_facts = true});
  const auto tree = flatten(layers);
  EXPECT_TRUE(tree.has_elf_facts);
  EXPECT_EQ(tree.entries.at("z.so").elf->soname, "new");
  EXPECT_EQ(tree.entries.at("a.so").elf->soname, "old");
  EXPECT_EQ(tree.entries.at("text").elf, nullptr);
  layers[1].has_elf_facts = false;
  EXPECT_FALSE(flatten(layers).has_elf_facts);
}

TEST(FlatTree, EntriesAreTheSameWhereOnlyThePlaceDiffers) {
  const auto before = flat({{file("f", "x")}});
  const auto after = flat({{flat_entry(FileType::kDirectory, "d")}, {file("g", "y"), file("f", "x")}});
  EXPECT_TRUE(same_entry(before.entries.at("f"), after.entries.at("f")));
}

TEST(FlatTree, SaysWhatDiffers) {
  const auto original = flat({{file("f", "x")}}).entries.at("f");
  const auto difference = [&](const std::function<void(FlatEntry&)>& change) {
    auto changed = original;
    change(changed);
    std::string why;
    EXPECT_FALSE(same_entry(original, changed, &why));
    return why;
  };
  EXPECT_EQ(difference([](auto& entry) { entry.mode = 0644; }), "mode 0644 instead of 0755");
  EXPECT_EQ(difference([](auto& entry) { entry.uid = 7; }), "owner 7:0 instead of 0:0");
  EXPECT_EQ(difference([](auto& entry) { entry.mtime_nanoseconds = 5; }), "time 0.000000005 instead of 0.000000000");
  EXPECT_EQ(difference([](auto& entry) { entry.size = 2; }), "2 bytes instead of 1");
  EXPECT_EQ(difference([](auto& entry) { entry.link_of = "e"; }), "a hard link of 'e' instead of ''");
  EXPECT_EQ(difference([](auto& entry) { entry.xattrs["user.a"] = "b"; }), "other extended attributes");
  EXPECT_THAT(difference([](auto& entry) { entry.content_digest = digest_of(std::string_view("y")); }),
              ::testing::HasSubstr("content sha256:"));
}

}  // namespace
}  // namespace varve::index
