#include <gtest/gtest.h>

#include "core/index/index_sources.h"
#include "testing/indexed_image_fixture.h"

namespace varve::index {
namespace {

class ColdMarksTest : public test::IndexedImageFixture {
 protected:
  ColdMarksTest() {
    cold_.layers.push_back({.layer_digest = digest_of(std::string("blob a")), .ranges = {{0, 512}, {1024, 5000}}});
  }
  LoadedIndex load() { return load_index(local_, image_, IndexPlace::kRepository); }
  ImageIndexBlobs mark(const ColdRanges& cold) {
    return publish_cold(image_, load(), cold, local_, *repository_, CancelFlag());
  }

  LocalIndex local_{dir_.path() / "root"};
  ColdRanges cold_;
};

TEST_F(ColdMarksTest, MakeANewIndexOfTheSameBlobs) {
  const auto before = publish();
  const auto old = *find_index(*repository_, image_);
  const auto marked = mark(cold_);
  EXPECT_NE(marked.manifest.digest, before.digest);
  EXPECT_EQ(marked.generation, 1u);
  EXPECT_EQ(marked.tree.digest, old.tree.digest);
  for (std::size_t i = 0; i < old.layers.size(); ++i) EXPECT_EQ(marked.layers[i].map.digest, old.layers[i].map.digest);
  EXPECT_EQ(load().cold, cold_);
  EXPECT_EQ(load_index(local_, image_).cold, cold_) << "this machine knows without asking";
  EXPECT_EQ(marked.first_load_bytes(),
            old.first_load_bytes() - old.manifest.size + marked.manifest.size + cold_.encode().size());
  // Another machine has the old index and learns of the new one when it asks.
  LocalIndex other(dir_.path() / "other");
  EXPECT_EQ(load_index(other, image_).cold, cold_);
}

TEST_F(ColdMarksTest, TheSameMarksAgainPublishNothing) {
  publish();
  const auto first = mark(cold_);
  EXPECT_EQ(mark(cold_).manifest.digest, first.manifest.digest);
}

TEST_F(ColdMarksTest, AreChangedAndTakenAwayByFurtherGenerations) {
  publish();
  mark(cold_);
  cold_.layers[0].ranges = {{2048, 512}};
  EXPECT_EQ(mark(cold_).generation, 2u);
  EXPECT_EQ(load().cold, cold_);
  const auto bare = mark({});
  EXPECT_EQ(bare.generation, 3u);
  EXPECT_EQ(bare.cold, std::nullopt);
  EXPECT_TRUE(load().cold.empty());
}

TEST_F(ColdMarksTest, AMachineWithAnOlderIndexLearnsOfTheMarksWhenItAsks) {
  publish();
  LocalIndex other(dir_.path() / "other");
  load_index(other, image_);
  mark(cold_);
  EXPECT_TRUE(load_index(other, image_).cold.empty());
  EXPECT_EQ(load_index(other, image_, IndexPlace::kRepository).cold, cold_);
  EXPECT_EQ(load_index(other, image_).cold, cold_) << "and keeps what it learned";
}

TEST_F(ColdMarksTest, AndTheProfileAreChangedOneWithoutTheOther) {
  publish();
  Profile profile{.recordings = 1,
                  .layers = {digest_of(std::string("blob a"))},
                  .ranges = {{.layer = 0, .stream_range = {0, 512}}}};
  const auto attach = [&] { return publish_profile(image_, load(), profile, local_, *repository_, CancelFlag()); };
  mark(cold_);
  const auto attached = attach();
  EXPECT_EQ(attached.generation, 2u);
  EXPECT_EQ(load().profile, profile);
  EXPECT_EQ(load().cold, cold_);
  EXPECT_EQ(attach().manifest.digest, attached.manifest.digest) << "the same again publishes nothing";
  mark({});
  EXPECT_EQ(load().profile, profile);
  EXPECT_TRUE(load().cold.empty());
  LocalIndex other(dir_.path() / "other");
  EXPECT_EQ(load_index(other, image_).profile, profile);
  profile.ranges[0].stream_range.length = kStreamBytes + 1;
  EXPECT_THROW(attach(), CorruptData);
  profile = {};
  EXPECT_EQ(attach().profile, std::nullopt);
  EXPECT_TRUE(load().profile.ranges.empty());
}

TEST_F(ColdMarksTest, OutsideOfTheLayersAreRefusedByWriterAndReader) {
  publish();
  auto outside = cold_;
  outside.layers[0].ranges = {{kStreamBytes - 1, 2}};
  EXPECT_THROW(mark(outside), CorruptData);
  auto blobs = blobs_of({map_of(0), map_of(1), map_of(2)});
  blobs.cold = repository_->add_blob(outside.encode());
  blobs.generation = 1;
  publish(blobs);
  EXPECT_THROW(load(), CorruptData);
}

}  // namespace
}  // namespace varve::index
