#include "fuse/mount/image_seeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/files/file.h"
#include "fuse/mount/image_packs.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kNewBytes = 1 << 20;
constexpr std::uint64_t kOldBytes = 1 << 19;
constexpr std::uint64_t kSpanBytes = 64 << 10;

// The first two files lie 10,240 bytes further on in the new layer, the third came in front of the others; 512 bytes of
// header are before each, zeros behind it up to the next 512. Four bytes of the first are other ones.
class ImageSeedsTest : public ::testing::Test {
 protected:
  static constexpr ByteRange kFirst{.offset = 512, .length = 100'000};
  static constexpr ByteRange kSecond{.offset = 101'376, .length = 200'000};
  static constexpr ByteRange kThird{.offset = 302'080, .length = 20'000};
  static constexpr std::uint64_t kShift = 10'240, kThirdsPlace = 600'064, kLiteral = 520;

  ImageSeedsTest() {
    std::mt19937 random(17);
    for (std::uint64_t i = 0; i < kOldBytes; ++i) old_.push_back(std::byte(random()));
    for (std::uint64_t i = 0; i < kNewBytes; ++i) new_.push_back(std::byte(random()));
    std::ranges::copy(ByteView(old_).subspan(kFirst.offset, kFirst.length), new_.begin() + kFirst.offset + kShift);
    std::ranges::copy(ByteView(old_).subspan(kSecond.offset, kSecond.length), new_.begin() + kSecond.offset + kShift);
    std::ranges::copy(ByteView(old_).subspan(kThird.offset, kThird.length), new_.begin() + kThirdsPlace);
    for (const auto end : {moved(kFirst).end(), moved(kSecond).end(), kThirdsPlace + kThird.length})
      std::fill(new_.begin() + std::ptrdiff_t(end), new_.begin() + std::ptrdiff_t(padded(end)), std::byte(0));
    for (std::size_t i = 0; i < 4; ++i) new_[kLiteral + kShift + i] ^= std::byte(0xff);
    layer_ = stream_of("layer", new_);
    source_ = stream_of("source", old_);
    layer_->set_missing();
    file_ = std::make_shared<SeededFile>(std::make_shared<LayerFile>(layer_), image_);
    index::SeededLayer layer{.layer = layer_->map().layer_digest, .ranges = {}, .literals = {}};
    layer.ranges = {{.stream_range = moved(kFirst), .source = 0, .source_offset = kFirst.offset},
                    {.stream_range = moved(kSecond), .source = 0, .source_offset = kSecond.offset},
                    {.stream_range = {kThirdsPlace, kThird.length}, .source = 0, .source_offset = kThird.offset}};
    index::SeedLiteral literal{.stream_offset = kLiteral + kShift};
    std::copy_n(new_.begin() + kLiteral + kShift, 4, literal.bytes.begin());
    layer.literals = {literal};
    seeds_.sources.push_back({.layer = source_->map().layer_digest, .map = {}, .entries = {}});
    seeds_.layers.push_back(std::move(layer));
  }

  static std::uint64_t padded(std::uint64_t end) { return (end + 511) / 512 * 512; }
  static ByteRange moved(ByteRange range) { return {range.offset + kShift, range.length}; }

  std::shared_ptr<test::FakeLayerStream> stream_of(const std::string& name, const Bytes& bytes) {
    write_file_atomically(dir_ / name, bytes);
    auto stream = std::make_shared<test::FakeLayerStream>(dir_ / name, bytes.size());
    stream->cut_into_spans(kSpanBytes);
    return stream;
  }
  void use() { image_->use(seeds_, {layer_}, {source_}); }
  std::vector<StreamPiece> pieces_of(ByteRange range) {
    std::vector<StreamPiece> pieces;
    file_->find_pieces(range, 0, pieces);
    return pieces;
  }
  std::string answer(const std::vector<StreamPiece>& pieces, ByteRange range) {
    std::string answer = "no answer";
    read_pieces(pieces, range.length, [&](std::exception_ptr error, ByteView bytes) {
      answer = error                                                                           ? "failed"
               : std::ranges::equal(bytes, ByteView(new_).subspan(range.offset, range.length)) ? "right"
                                                                                               : "wrong";
    });
    return answer;
  }
  std::string read(ByteRange range) { return answer(pieces_of(range), range); }
  // Nothing but these parts of the source is here any more.
  void leave_of_source(const std::vector<ByteRange>& ranges) {
    source_->set_missing();
    source_->keep_what_comes();
    for (const auto& range : ranges) source_->ensure(range, Priority::kReader, [](const auto&) {});
  }

  test::TempDir dir_;
  Bytes old_, new_;
  std::shared_ptr<test::FakeLayerStream> layer_, source_;
  index::Seeds seeds_;
  std::shared_ptr<ImageSeeds> image_ = std::make_shared<ImageSeeds>();
  std::shared_ptr<StreamFile> file_;
};

TEST_F(ImageSeedsTest, AreAsIfNotThereUntilTheyAreUsed) {
  EXPECT_EQ(read(moved(kFirst)), "right");
  EXPECT_EQ(layer_->wishes(), 1u);
  EXPECT_FALSE(image_->is_enabled());
  EXPECT_EQ(image_->read_bytes(), 0u);
}

TEST_F(ImageSeedsTest, WhatASourceHasIsReadThereWithItsLiterals) {
  use();
  EXPECT_EQ(read(moved(kFirst)), "right");
  EXPECT_EQ(read({kLiteral + kShift, 4}), "right");
  EXPECT_EQ(read({kLiteral + kShift + 1, 2}), "right");
  EXPECT_EQ(read({kLiteral + kShift - 3, 5}), "right");
  EXPECT_EQ(read({kLiteral + kShift + 3, 5}), "right");
  EXPECT_EQ(read(moved(kSecond)), "right");
  EXPECT_EQ(read({kThirdsPlace + 7, 19'000}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
  EXPECT_EQ(source_->wishes(), 0u);
  EXPECT_EQ(image_->read_bytes(), kFirst.length - 4 + 3 + 4 + kSecond.length + 19'000);
  EXPECT_EQ(image_->source_bytes(), source_->stats().present_bytes);
}

TEST_F(ImageSeedsTest, WhatNoReaderGetsIsNotCounted) {
  use();
  const auto first = moved(kFirst);
  Bytes bytes(first.length);
  for (const auto& piece : pieces_of(first))
    EXPECT_TRUE(read_if_here(piece, std::span(bytes).subspan(piece.into, piece.length)));
  EXPECT_TRUE(std::ranges::equal(bytes, std::span(new_).subspan(first.offset, first.length)));
  EXPECT_EQ(image_->read_bytes(), 0u) << "it is read again for who asks, and spares one fetch";
  EXPECT_EQ(read(first), "right");
  EXPECT_EQ(image_->read_bytes(), first.length - 4) << "without its literal";
}

TEST_F(ImageSeedsTest, WhatLiesBetweenComesFromTheLayer) {
  use();
  EXPECT_EQ(read({0, kNewBytes}), "right");
  const auto first = moved(kFirst), second = moved(kSecond);
  const auto after_first = padded(first.end()), after_second = padded(second.end());
  const auto after_third = padded(kThirdsPlace + kThird.length);
  EXPECT_EQ(layer_->wished(), (std::vector<ByteRange>{{0, first.offset},
                                                      {after_first, second.offset - after_first},
                                                      {after_second, kThirdsPlace - after_second},
                                                      {after_third, kNewBytes - after_third}}));
  std::vector<ByteRange> headers;
  for (const auto& piece : pieces_of({0, kNewBytes}))
    if (piece.between_files) headers.push_back({piece.stream_offset, piece.length});
  EXPECT_EQ(headers, (std::vector<ByteRange>{{after_first, 512}})) << "what is longer may be a file";
}

TEST_F(ImageSeedsTest, ZerosBehindAFileAreNotFetched) {
  use();
  const auto end = moved(kFirst).end();
  for (const ByteRange& range :
       {ByteRange{end - 100, padded(end) - end + 100}, ByteRange{end, padded(end) - end}, ByteRange{end + 7, 9}})
    EXPECT_EQ(read(range), "right");
  leave_of_source({});
  EXPECT_EQ(read({end, padded(end) - end}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
}

TEST_F(ImageSeedsTest, WhatTheSourceLacksIsAskedOfTheLayerInOnePiece) {
  use();
  leave_of_source({{0, 64 << 10}, {192 << 10, 64 << 10}});
  EXPECT_EQ(read(moved(kSecond)), "right");
  // Of the second file the source has its third span; what is before it lies in two.
  EXPECT_EQ(layer_->wished(), (std::vector<ByteRange>{{moved(kSecond).offset, (192 << 10) - kSecond.offset},
                                                      {(256 << 10) + kShift, kSecond.end() - (256 << 10)}}));
  EXPECT_EQ(pieces_of(moved(kSecond)).size(), 3u);
  for (const auto& piece : pieces_of({moved(kFirst).end(), 2048})) EXPECT_FALSE(piece.between_files) << "content too";
  EXPECT_EQ(source_->wishes(), 2u);  // ours above: nothing is fetched for the old version
}

TEST_F(ImageSeedsTest, WhatIsThereWholeMayBeLeftToTheLayerToCopy) {
  image_->use(seeds_, {layer_}, {source_}, ImageSeeds::Whole::kCopied);
  leave_of_source({{0, 192 << 10}});
  EXPECT_EQ(read({moved(kFirst).offset + 4096, 4096}), "right");
  EXPECT_EQ(layer_->wished(), (std::vector<ByteRange>{{moved(kFirst).offset + 4096, 4096}}));
  EXPECT_EQ(read({moved(kSecond).offset + 4096, 4096}), "right");
  EXPECT_EQ(layer_->wishes(), 1u) << "of the second file the source has the beginning alone";
  EXPECT_EQ(image_->read_bytes(), 4096u);
}

TEST_F(ImageSeedsTest, WhatGoesMeanwhileIsReadFromTheLayer) {
  use();
  const auto pieces = pieces_of(moved(kFirst));
  source_->set_missing();
  EXPECT_EQ(answer(pieces, moved(kFirst)), "right");
  EXPECT_EQ(source_->wishes(), 0u);
  EXPECT_EQ(image_->read_bytes(), 0u);
}

TEST_F(ImageSeedsTest, WhatTheLayerHasIsReadThere) {
  use();
  layer_->set_here();
  EXPECT_EQ(read({0, kNewBytes}), "right");
  EXPECT_EQ(pieces_of({0, kNewBytes}).size(), 1u);
  EXPECT_EQ(image_->read_bytes(), 0u);
}

TEST_F(ImageSeedsTest, WithoutSourceOrBeyondItNothingIsFoundThere) {
  seeds_.layers[0].ranges[2].source_offset = kOldBytes - kThird.length + 512;
  use();
  EXPECT_EQ(read({kThirdsPlace, 100}), "right");
  EXPECT_EQ(layer_->wishes(), 1u);
  ImageSeeds none;
  none.use(seeds_, {layer_}, {nullptr});
  std::vector<StreamPiece> pieces;
  none.find_pieces({.stream = layer_.get(), .stream_offset = moved(kFirst).offset, .length = 100}, pieces);
  EXPECT_EQ(pieces,
            (std::vector<StreamPiece>{{.stream = layer_.get(), .stream_offset = moved(kFirst).offset, .length = 100}}));
  EXPECT_EQ(none.source_bytes(), 0u);
  EXPECT_TRUE(none.sources().empty());
}

TEST_F(ImageSeedsTest, TheFirstThatAreUsedStay) {
  use();
  auto others = seeds_;
  others.layers[0].ranges[0].source_offset = kSecond.offset;
  image_->use(others, {layer_}, {source_});
  EXPECT_EQ(read(moved(kFirst)), "right");
  EXPECT_EQ(image_->sources(), std::vector<std::shared_ptr<LayerStream>>{source_});
}

TEST_F(ImageSeedsTest, KnowWhatIsHere) {
  EXPECT_FALSE(image_->is_here(*layer_, moved(kFirst)));
  use();
  EXPECT_TRUE(image_->is_here(*layer_, moved(kFirst)));
  EXPECT_TRUE(image_->is_here(*layer_, {kLiteral + kShift, 4}));
  EXPECT_FALSE(image_->is_here(*layer_, {moved(kFirst).offset - 1, 2}));
  leave_of_source({{0, 64 << 10}});
  EXPECT_FALSE(image_->is_here(*layer_, moved(kFirst)));
  layer_->set_here();
  EXPECT_TRUE(image_->is_here(*layer_, {0, kNewBytes}));
}

TEST_F(ImageSeedsTest, DamagedBytesOfASourceAreFoundInTheLayer) {
  EXPECT_TRUE(image_->places_of(*source_, {{0, kOldBytes}}).empty());
  use();
  const auto places = image_->places_of(*source_, {{kFirst.offset + 100, 50}, {kThird.end() - 1, 512}});
  EXPECT_EQ(places,
            (std::vector<std::pair<LayerStream*, ByteRange>>{{layer_.get(), {kFirst.offset + kShift + 100, 50}},
                                                             {layer_.get(), {kThirdsPlace + kThird.length - 1, 1}}}));
  EXPECT_TRUE(image_->places_of(*layer_, {{0, kOldBytes}}).empty());
}

TEST_F(ImageSeedsTest, APackIsNotFetchedForWhatTheyHave) {
  constexpr std::uint64_t kBehind = 700'000;
  index::StartPacks packs{.layers = {layer_->map().layer_digest}, .groups = {}};
  index::StartGroup group;
  group.name = "numpy";
  group.trigger = {0, {moved(kFirst).offset, 4096}};
  group.pack.ranges = {{0, moved(kFirst)}, {0, {kBehind, 1000}}};
  Bytes stream;
  for (const auto& range : group.pack.ranges)
    append(stream, ByteView(new_).subspan(range.stream_range.offset, range.stream_range.length));
  auto pack = stream_of("pack", stream);
  pack->set_missing();
  packs.groups.push_back(group);
  const auto images_packs = std::make_shared<ImagePacks>(
      packs, std::vector<std::shared_ptr<LayerStream>>{layer_}, image_, [&](const auto&) { return pack; },
      [](const auto&) {});
  images_packs->enable([](const auto&) { return false; });
  file_ = std::make_shared<SeededFile>(std::make_shared<PackedFile>(std::make_shared<LayerFile>(layer_), images_packs),
                                       image_);
  use();
  EXPECT_EQ(read(moved(kFirst)), "right");
  EXPECT_EQ(image_->read_bytes(), kFirst.length - 4);
  EXPECT_EQ(read({kBehind, 1000}), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
  for (const auto& wished : pack->wished()) EXPECT_GE(wished.offset, kSpanBytes);  // that is in its second span
  const auto pieces = pieces_of(moved(kFirst));
  source_->set_missing();
  EXPECT_EQ(answer(pieces, moved(kFirst)), "right");
  EXPECT_EQ(layer_->wishes(), 0u);
  file_.reset();  // with the packs' thread, which reads what is this test's
}

}  // namespace
}  // namespace varve::fuse
