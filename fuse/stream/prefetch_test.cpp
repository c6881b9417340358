#include "fuse/stream/prefetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/files/file.h"
#include "testing/fake_layer_stream.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint64_t kSpan = 1000;

class PrefetchTest : public ::testing::Test {
 protected:
  PrefetchTest() {
    for (const char* name : {"one", "two"}) {
      write_file_atomically(dir_ / name, {});
      layers_.push_back(std::make_shared<test::FakeLayerStream>(dir_ / name, 100 * kSpan));
      layers_.back()->cut_into_spans(kSpan);
      layers_.back()->set_missing();
      streams_.push_back(layers_.back());
    }
  }
  // By layer (0 or 1) and stream offset and length.
  void want(std::uint32_t layer, std::uint64_t offset, std::uint64_t length) {
    builder_.touch(layers_[layer]->map().layer_digest, {offset, length}, 0);
  }
  std::vector<std::pair<std::size_t, ByteRange>> plan() {
    std::vector<std::pair<std::size_t, ByteRange>> planned;
    for (const auto& piece : plan_prefetch(streams_, builder_.profile(), cold_, options_))
      planned.emplace_back(piece.layer == streams_[1], piece.stream_range);
    return planned;
  }
  using Piece = std::pair<std::size_t, ByteRange>;

  test::TempDir dir_;
  std::vector<std::shared_ptr<test::FakeLayerStream>> layers_;
  std::vector<std::shared_ptr<LayerStream>> streams_;
  index::ProfileBuilder builder_;
  index::ColdRanges cold_;
  PrefetchOptions options_{.window_bytes = 1 << 20, .max_bytes_under_way = 4 * 100};
};

TEST_F(PrefetchTest, WantsWholeSpansOnceInTheOrderOfTheProfile) {
  want(1, 50'500, 10);
  want(0, 3'000, 1'000);
  want(1, 50'900, 50);  // the same span
  want(1, 10, 10);
  EXPECT_THAT(plan(), ElementsAre(Piece{1, {50'000, 1000}}, Piece{0, {3000, 1000}}, Piece{1, {0, 1000}}));
}

TEST_F(PrefetchTest, NeighboursOfAWindowAreOnePieceWhereverTheyComeInTheOrder) {
  want(0, 5'000, 10);
  want(1, 0, 10);
  want(0, 4'000, 10);
  want(0, 6'000, 10);
  EXPECT_THAT(plan(), ElementsAre(Piece{0, {4000, 3000}}, Piece{1, {0, 1000}}));
  // A window as small as a span keeps the order as it is.
  options_.window_bytes = 1;
  EXPECT_THAT(plan(),
              ElementsAre(Piece{0, {5000, 1000}}, Piece{1, {0, 1000}}, Piece{0, {4000, 1000}}, Piece{0, {6000, 1000}}));
}

TEST_F(PrefetchTest, LeavesOutWhatIsHereOrColdAllOverOrOfNoLayer) {
  builder_.touch(digest_of("another image's"), {0, 10}, 0);
  want(0, 1'500, 3'000);
  want(1, 0, 10);
  layers_[1]->set_here();
  cold_.layers = {{.layer_digest = layers_[0]->map().layer_digest, .ranges = {{2'000, 1'500}}}};
  EXPECT_THAT(plan(), ElementsAre(Piece{0, {1000, 1000}}, Piece{0, {3000, 2000}}));
}

std::vector<PrefetchPiece> pieces_of(const std::shared_ptr<LayerStream>& layer, std::size_t count) {
  std::vector<PrefetchPiece> pieces;
  for (std::size_t i = 0; i < count; ++i)
    pieces.push_back({.layer = layer, .stream_range = {2 * i * kSpan, kSpan}, .compressed_bytes = 100});
  return pieces;
}

TEST_F(PrefetchTest, HasNoMoreUnderWayThanItsLimit) {
  layers_[0]->hold();
  const Prefetch prefetch(pieces_of(streams_[0], 10), options_);
  layers_[0]->wait_for_wishes(4);
  EXPECT_EQ(layers_[0]->wishes(), 4u);
  EXPECT_EQ(prefetch.fetched_bytes(), 0u);
  layers_[0]->arrive();
  layers_[0]->wait_for_wishes(10);
}

TEST_F(PrefetchTest, APieceLargerThanTheLimitGoesAlone) {
  auto pieces = pieces_of(streams_[0], 3);
  for (auto& piece : pieces) piece.compressed_bytes = 1000;
  layers_[0]->hold();
  const Prefetch prefetch(pieces, options_);
  layers_[0]->wait_for_wishes(1);
  EXPECT_EQ(layers_[0]->wishes(), 1u);
  layers_[0]->arrive();
  layers_[0]->wait_for_wishes(3);
}

TEST_F(PrefetchTest, EndsWithItsMountAndWantsNothingMore) {
  layers_[0]->hold();
  {
    const Prefetch prefetch(pieces_of(streams_[0], 10), options_);
    layers_[0]->wait_for_wishes(4);
  }
  layers_[0]->arrive();  // late, and to nobody's harm
  EXPECT_EQ(layers_[0]->wishes(), 4u);
}

TEST_F(PrefetchTest, AFailureEndsItAndNobodyElse) {
  layers_[0]->fail_all("the registry is away");
  auto pieces = pieces_of(streams_[0], 1);
  const auto later = pieces_of(streams_[1], 8);
  pieces.insert(pieces.end(), later.begin(), later.end());
  auto prefetch = std::make_unique<Prefetch>(pieces, options_);
  layers_[0]->wait_for_wishes(1);
  prefetch.reset();
  EXPECT_EQ(layers_[1]->wishes(), 0u);
}

TEST_F(PrefetchTest, CountsWhatCame) {
  Prefetch prefetch(pieces_of(streams_[0], 10), options_);
  layers_[0]->wait_for_wishes(10);
  while (prefetch.fetched_bytes() < 1000) std::this_thread::yield();
  EXPECT_EQ(prefetch.fetched_bytes(), 1000u);
}

}  // namespace
}  // namespace varve::fuse
