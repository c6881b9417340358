#include "fuse/mount/image_packs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <random>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kLayerBytes = 3 << 20;

class ImagePacksTest : public ::testing::Test {
 protected:
  ImagePacksTest() {
    std::mt19937 random(17);
    for (std::uint64_t i = 0; i < kLayerBytes; ++i) content_.push_back(std::byte(random()));
    write_file_atomically(dir_ / "layer", content_);
    layer_ = std::make_shared<test::FakeLayerStream>(dir_ / "layer", kLayerBytes);
    layer_->set_missing();
    packs_.layers = {layer_->map().layer_digest};
  }

  // Its trigger is the first page of its first range. The blob is named like the group.
  void add_group(const std::string& name, const std::vector<ByteRange>& ranges,
                 const std::vector<ByteRange>& literals = {}) {
    index::StartGroup group;
    group.name = name;
    group.trigger = {0, {ranges.front().offset, std::min<std::uint64_t>(4096, ranges.front().length)}};
    group.pack.blob = digest_of(name);
    Bytes stream;
    for (const auto& range : ranges) {
      group.pack.ranges.push_back({0, range});
      append(stream, ByteView(content_).subspan(range.offset, range.length));
    }
    for (const auto& range : literals)
      group.pack.literals.push_back(
          {0, range.offset, to_bytes(ByteView(content_).subspan(range.offset, range.length))});
    write_file_atomically(dir_ / name, stream);
    auto& pack = streams_[group.pack.blob] = std::make_shared<test::FakeLayerStream>(dir_ / name, stream.size());
    pack->cut_into_spans(index::kPackFrameBytes);
    pack->set_missing();
    packs_.groups.push_back(std::move(group));
  }
  test::FakeLayerStream& pack(const std::string& name) { return *streams_.at(digest_of(name)); }

  void open(bool enabled = true) {
    images_packs_ = std::make_shared<ImagePacks>(
        packs_, std::vector<std::shared_ptr<LayerStream>>{layer_}, std::make_shared<ImageSeeds>(),
        [this](const index::StartPack& wanted) -> std::shared_ptr<LayerStream> {
          if (refuse_) fail<TemporaryError>("the disk is full");
          if (while_opened_) while_opened_();
          return streams_.at(wanted.blob);
        },
        [this](const index::StartPack& wanted) {
          kept_.with([&](auto& kept) { kept.emplace_back(wanted.blob, std::this_thread::get_id()); });
          if (refuse_to_keep_) fail<TemporaryError>("the disk is full");
        });
    file_ = std::make_shared<PackedFile>(std::make_shared<LayerFile>(layer_), images_packs_);
    if (enabled) images_packs_->enable([](const index::StartPack&) { return false; });
  }

  // Whether what is read there was learnt.
  bool is_learnt(ByteRange range) {
    std::vector<StreamPiece> pieces;
    file_->find_pieces(range, 0, pieces);
    return std::ranges::any_of(pieces, &StreamPiece::learnt);
  }
  // Of what was read, or of the error.
  std::string read(ByteRange range) {
    std::vector<StreamPiece> pieces;
    file_->find_pieces(range, 0, pieces);
    std::string answer = "no answer";
    read_pieces(pieces, range.length, [&](std::exception_ptr error, ByteView bytes) {
      answer = error                                                                               ? "failed"
               : std::ranges::equal(bytes, ByteView(content_).subspan(range.offset, range.length)) ? "right"
                                                                                                   : "wrong";
    });
    return answer;
  }

  test::TempDir dir_;
  Bytes content_;
  std::shared_ptr<test::FakeLayerStream> layer_;
  index::StartPacks packs_;
  std::map<Digest, std::shared_ptr<test::FakeLayerStream>> streams_;
  bool refuse_ = false, refuse_to_keep_ = false;
  std::function<void()> while_opened_;
  Guarded<std::vector<std::pair<Digest, std::thread::id>>> kept_;
  std::shared_ptr<ImagePacks> images_packs_;
  std::shared_ptr<PackedFile> file_;
};

TEST_F(ImagePacksTest, AreAsIfNotThereUntilTheyAreEnabled) {
  add_group("numpy", {{0, 8192}});
  open(false);
  EXPECT_EQ(read({0, 8192}), "right");
  EXPECT_EQ(layer_->wishes(), 1u);
  EXPECT_EQ(pack("numpy").wishes(), 0u);
}

TEST_F(ImagePacksTest, TheTriggersFirstReadBringsAllOfThePackAndNothingOfTheLayer) {
  add_group("numpy", {{4096, 8192}, {1 << 20, 600'000}, {100'000, 50'000}});
  open();
  EXPECT_EQ(read({4096, 4096}), "right");
  EXPECT_EQ(read({(1 << 20) + 5, 599'000}), "right");
  EXPECT_EQ(read({100'000, 50'000}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
  // Brought, whoever reads.
  while (pack("numpy").wished() != std::vector<ByteRange>{{0, 658'192}}) std::this_thread::yield();
}

TEST_F(ImagePacksTest, WhoReadsBesideTheTriggersFirstReadWaitsForThePack) {
  add_group("numpy", {{4096, 4096}, {100'000, 50'000}});
  std::promise<void> opening, beside;
  while_opened_ = [&] {
    opening.set_value();
    // Passes soon, whoever waits; long enough for a read that does not wait to be through.
    beside.get_future().wait_for(std::chrono::milliseconds(200));
  };
  open();
  auto first = std::async(std::launch::async, [&] { return read({4096, 2048}); });
  opening.get_future().wait();
  EXPECT_EQ(read({6144, 2048}), "right");
  beside.set_value();
  EXPECT_EQ(first.get(), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
  EXPECT_TRUE(is_learnt({100'000, 50'000}));
}

TEST_F(ImagePacksTest, WhatDescribesAPackIsKeptOnceAndNotByWhoReads) {
  for (const bool refuse : {false, true}) {
    refuse_to_keep_ = refuse;
    file_.reset();
    images_packs_.reset();
    packs_.groups.clear();
    kept_.lock()->clear();
    add_group("numpy", {{4096, 600'000}, {1 << 20, 600'000}});
    open();
    EXPECT_EQ(read({4096, 4096}), "right");
    while (pack("numpy").wished() != std::vector<ByteRange>{{0, 1'200'000}}) std::this_thread::yield();
    const auto kept = *kept_.lock();
    ASSERT_EQ(kept.size(), 1u);
    EXPECT_EQ(kept[0].first, digest_of("numpy"));
    EXPECT_NE(kept[0].second, std::this_thread::get_id());
  }
}

TEST_F(ImagePacksTest, BytesBeforeTheTriggerAndBetweenTheRangesAreTheLayers) {
  add_group("numpy", {{4096, 4096}, {12'288, 4096}});
  open();
  EXPECT_EQ(read({12'288, 4096}), "right");  // not triggered yet
  EXPECT_EQ(layer_->wishes(), 1u);
  EXPECT_EQ(pack("numpy").wishes(), 0u);
  EXPECT_EQ(read({4096, 4096 * 3 + 10}), "right");
  EXPECT_THAT(layer_->wished(), ::testing::ElementsAre(ByteRange{8192, 4096 + 4096 + 10}));
}

TEST_F(ImagePacksTest, LiteralsAreInNoStream) {
  add_group("numpy", {{0, 8}, {16, 4080}}, {{8, 8}});
  open();
  EXPECT_EQ(read({0, 4096}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
}

TEST_F(ImagePacksTest, WhatTheLayerHasIsNotAskedOfAPack) {
  add_group("numpy", {{0, 600'000}});
  layer_->set_here();
  open();
  EXPECT_EQ(read({0, 600'000}), "right");
  images_packs_.reset();
  file_.reset();
  EXPECT_EQ(pack("numpy").wishes(), 0u);
}

TEST_F(ImagePacksTest, APackThatFailsIsReadFromTheLayerAndNotAskedAgain) {
  add_group("numpy", {{0, 1 << 20}});
  pack("numpy").fail_all("no such blob");
  open();
  EXPECT_EQ(read({0, 4096}), "right");
  const auto wishes = [&] { return pack("numpy").wishes(); };
  EXPECT_GE(layer_->wishes(), 1u);
  EXPECT_EQ(read({8192, 4096}), "right");
  const auto asked = wishes();
  for (int i = 3; i < 20; ++i) EXPECT_EQ(read({std::uint64_t(i) * 8192, 4096}), "right");
  EXPECT_LE(wishes(), asked + 2);  // what was brought ahead of readers meanwhile
}

TEST_F(ImagePacksTest, AFailureOfBothIsTheReadersError) {
  add_group("numpy", {{0, 1 << 20}});
  pack("numpy").fail_all("no such blob");
  layer_->fail_all("no such layer");
  open();
  EXPECT_EQ(read({0, 4096}), "failed");
}

TEST_F(ImagePacksTest, APackThatCannotBeOpenedIsNotUsed) {
  add_group("numpy", {{0, 8192}});
  refuse_ = true;
  open();
  EXPECT_EQ(read({0, 8192}), "right");
  EXPECT_EQ(layer_->wishes(), 1u);
  EXPECT_TRUE(images_packs_->streams().empty());
}

TEST_F(ImagePacksTest, WhatIsInTheStoreIsUsedWithoutItsTrigger) {
  add_group("numpy", {{0, 4096}, {1 << 20, 4096}});
  open(false);
  images_packs_->enable([](const index::StartPack&) { return true; });
  EXPECT_EQ(read({1 << 20, 4096}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
}

TEST_F(ImagePacksTest, WhatAPackHoldsIsLearntWhereverItIsReadFrom) {
  add_group("numpy", {{4096, 4096}, {1 << 20, 8}}, {{100'000, 8}});
  open();
  EXPECT_FALSE(is_learnt({1 << 20, 4096})) << "not triggered yet";
  for (const bool here : {false, true}) {
    if (here) layer_->set_here();
    EXPECT_TRUE(is_learnt({4096, 10}));
    EXPECT_TRUE(is_learnt({0, 8192}));
    EXPECT_TRUE(is_learnt({1 << 20, 4096}));
    EXPECT_TRUE(is_learnt({99'000, 4096})) << "a literal";
    EXPECT_FALSE(is_learnt({0, 4096}));
    EXPECT_FALSE(is_learnt({200'000, 4096}));
  }
}

TEST_F(ImagePacksTest, WhatTwoPacksHoldIsBroughtOnce) {
  constexpr auto kFrame = index::kPackFrameBytes;
  add_group("numpy", {{0, 2 * kFrame}});
  // Its second frame is numpy's, too.
  add_group("pandas", {{1 << 20, kFrame}, {4096, kFrame}, {1 << 21, 4096}});
  open();
  EXPECT_EQ(read({0, 1}), "right");
  EXPECT_EQ(read({1 << 20, 1}), "right");
  while (pack("numpy").wished() != std::vector<ByteRange>{{0, 2 * kFrame}}) std::this_thread::yield();
  while (pack("pandas").wished() != std::vector<ByteRange>{{0, kFrame}, {2 * kFrame, 4096}}) std::this_thread::yield();
  EXPECT_EQ(read({4096, kFrame}), "right");
  EXPECT_EQ(read({1 << 21, 4096}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
}

TEST_F(ImagePacksTest, OfAPackThatFailedAnotherTakesItsPlace) {
  add_group("numpy", {{0, 4096}, {1 << 20, 600'000}});
  add_group("pandas", {{1 << 21, 4096}, {1 << 20, 600'000}});
  pack("numpy").fail_all("no such blob");
  open();
  EXPECT_EQ(read({0, 4096}), "right");
  const auto wishes = layer_->wishes();
  EXPECT_EQ(read({1 << 21, 4096}), "right");
  EXPECT_EQ(read({(1 << 20) + 1000, 500'000}), "right");
  EXPECT_EQ(layer_->wishes(), wishes);
}

TEST_F(ImagePacksTest, OverlappingPacksGiveTheSameBytesWhereverTheyAreCut) {
  std::mt19937 random(5);
  const auto number = [&](std::uint64_t limit) { return random() % limit; };
  for (int group = 0; group < 6; ++group) {
    std::map<std::uint64_t, ByteRange> ranges;
    for (std::uint64_t at = number(5000); at < kLayerBytes - 20'000;) {
      const ByteRange range{at, 1 + number(9000)};
      ranges[random()] = range;  // in some order
      at = range.end() + number(30'000);
    }
    std::vector<ByteRange> shuffled;
    for (const auto& [key, range] : ranges) shuffled.push_back(range);
    add_group(fmt::format("group {}", group), shuffled);
  }
  open();
  for (int i = 0; i < 3000; ++i) {
    const auto offset = number(kLayerBytes - 20'000);
    ASSERT_EQ(read({offset, 1 + number(20'000)}), "right") << offset;
  }
  EXPECT_EQ(images_packs_->streams().size(), 6u);
}

TEST_F(ImagePacksTest, AStartIsBroughtThoughTheOneBeforeHasNotArrived) {
  add_group("numpy", {{0, 4096}});
  add_group("pandas", {{8192, 2 << 20}});
  pack("pandas").hold();
  pack("numpy").hold();
  open();
  std::vector<StreamPiece> pieces;
  file_->find_pieces({8192, 1}, 0, pieces);
  pack("pandas").wait_for_wishes(1);
  file_->find_pieces({0, 1}, 0, pieces);
  pack("numpy").wait_for_wishes(1);
  EXPECT_EQ(read({64 << 10, 1}), "no answer") << "pandas is not here";
}

TEST_F(ImagePacksTest, EndWhileTheyAreBrought) {
  add_group("numpy", {{0, 2 << 20}});
  pack("numpy").hold();
  open();
  std::vector<StreamPiece> pieces;
  file_->find_pieces({0, 1}, 0, pieces);
  pack("numpy").wait_for_wishes(1);
  file_.reset();
  images_packs_.reset();
  const auto wishes = pack("numpy").wishes();
  pack("numpy").arrive();
  EXPECT_EQ(pack("numpy").wishes(), wishes) << "nobody asks for the rest";
}

TEST_F(ImagePacksTest, DamagedBytesOfAPackAreFoundInTheLayers) {
  add_group("numpy", {{5000, 4096}, {1 << 20, 600'000}});
  open();
  EXPECT_EQ(read({5000, 10}), "right");
  const auto places = images_packs_->places_of(pack("numpy"), {{4096 + 300'000, 1}});
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].first, layer_.get());
  EXPECT_EQ(places[0].second, (ByteRange{1 << 20, 600'000}));
}

}  // namespace
}  // namespace varve::fuse
