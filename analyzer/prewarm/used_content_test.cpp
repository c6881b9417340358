#include "analyzer/prewarm/used_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::prewarm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class UsedContentTest : public ::testing::Test {
 protected:
  UsedContentTest() {
    auto map = std::make_shared<index::LayerMap>();
    map->layer_digest = digest_of("layer");
    map->stream_bytes = 100'000;
    maps_ = {map};
    for (const char* name : {"scipy", "numpy"}) {
      auto& distribution = inventory_.distributions.emplace_back();
      distribution.normalized = name;
      distribution.site = "site";
      inventory_.path_owners[std::string("site/") + name + "/"] = {std::uint32_t(inventory_.distributions.size() - 1)};
    }
  }
  // A file whose content is one block, the nth of the layer.
  void file(const std::string& path, std::uint64_t block) {
    auto& entry = tree_.entries[path];
    entry.type = FileType::kRegular;
    entry.size = 500;
    entry.runs = {{.layer = 0, .run = {.file_offset = 0, .stream_offset = block * 512, .length = 500}}};
  }
  std::vector<std::uint64_t> blocks_of(const std::string& name, const KnownUse& use) {
    std::vector<std::uint64_t> blocks;
    for (const auto& package : used_packages(tree_, inventory_, maps_, {{name, use}})) {
      EXPECT_EQ(package.name, name);
      EXPECT_EQ(package.sessions, use.sessions);
      for (const auto& range : package.content) blocks.push_back(range.stream_range.offset / 512);
    }
    return blocks;
  }

  index::FlatTree tree_;
  packages::Inventory inventory_;
  std::vector<std::shared_ptr<const index::LayerMap>> maps_;
};

TEST_F(UsedContentTest, IsWhatTheDistributionOwnsOfTheSubpackagesThatWereLoaded) {
  file("site/scipy/__init__.py", 1);
  file("site/scipy/signal/__init__.py", 2);
  file("site/scipy/signal/windows/a.py", 3);
  file("site/scipy/stats/__init__.py", 4);
  file("site/scipy/stats/tests/b.py", 5);
  file("site/scipy/data/table.bin", 6);  // no package
  file("site/numpy/__init__.py", 7);
  EXPECT_THAT(blocks_of("scipy", {.sessions = 3, .modules = {{"scipy", 3}, {"scipy.stats", 2}}}),
              ElementsAre(1, 6, 4, 5));
  EXPECT_THAT(blocks_of("scipy", {.sessions = 3, .modules = {}}), ElementsAre(1, 6, 2, 3, 4, 5))
      << "not known by module: all of it";
  EXPECT_THAT(blocks_of("scipy", {.sessions = 0, .modules = {{"scipy", 3}}}), IsEmpty());
  EXPECT_THAT(blocks_of("pandas", {.sessions = 3, .modules = {}}), IsEmpty()) << "not in this image";
}

TEST_F(UsedContentTest, OfAFurtherNameIsTheContentOfTheFirst) {
  file("cache/a.py", 9);
  file("site/numpy/a.py", 0);
  tree_.entries["site/numpy/a.py"].runs.clear();
  tree_.entries["site/numpy/a.py"].link_of = "cache/a.py";
  EXPECT_THAT(blocks_of("numpy", {.sessions = 1, .modules = {}}), ElementsAre(9));
}

TEST_F(UsedContentTest, CopiesInsideOthersAreTheOthers) {
  file("site/numpy/__init__.py", 1);
  inventory_.distributions[1].vendored_by = "scipy";
  EXPECT_THAT(blocks_of("numpy", {.sessions = 1, .modules = {}}), IsEmpty());
}

TEST_F(UsedContentTest, OutsideOfTheLayersIsRefused) {
  file("site/numpy/a.py", 1000);
  EXPECT_THROW(blocks_of("numpy", {.sessions = 1, .modules = {}}), CorruptData);
}

}  // namespace
}  // namespace varve::prewarm
