// Contents that are in the store without the spans around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "fuse/stream/span_store.h"
#include "testing/content_layer.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using State = SpanStore::State;

class SpanStoreUnitsTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kSpan = 20'000;

  SpanStoreUnitsTest() { open(); }
  void open(const index::LayerEntries* entries = nullptr) {
    if (entries == nullptr) entries = &layer_.entries;
    store_.reset();
    const auto digest = digest_of(entries->encode());
    store_ = std::make_unique<SpanStore>(dir_ / "layer", layer_.map, SpanStoreOptions{.entries = digest});
    store_->set_units(index::UnitTable::make(*entries, digest, layer_.map->stream_bytes));
  }
  Bytes part(ByteRange range) const { return to_bytes(ByteView(layer_.stream).subspan(range.offset, range.length)); }
  Bytes span(std::size_t number) const { return part(layer_.map->spans[number].stream_range); }
  std::size_t unit_of(std::string_view path) const { return store_->units()->contents_of(layer_.range_of(path)).first; }
  bool put(std::string_view path) { return store_->put_unit(unit_of(path), part(layer_.range_of(path))); }
  bool is_readable(std::string_view path) const { return store_->is_readable(layer_.range_of(path)); }
  // Empty if some of it is not here.
  Bytes read(ByteRange range) const {
    Bytes bytes(range.length);
    return store_->read(range.offset, bytes).empty() ? bytes : Bytes();
  }
  std::vector<std::size_t> spans_of(std::string_view path) const {
    const auto [first, last] = layer_.map->spans_of(layer_.range_of(path));
    std::vector<std::size_t> spans;
    for (auto one = first; one < last; ++one) spans.push_back(one);
    return spans;
  }

  test::TempDir dir_;
  // a and b lie in the first span, the last bytes of c in the third.
  test::ContentLayer layer_ = test::make_content_layer({{"a", test::some_stream(5'000, 1)},
                                                        {"b", test::some_stream(6'001, 2)},
                                                        {"c", test::some_stream(30'000, 3)},
                                                        {"d", test::some_stream(40'000, 4)}},
                                                       kSpan);
  std::unique_ptr<SpanStore> store_;
};

TEST_F(SpanStoreUnitsTest, AUnitIsReadWithoutItsSpansAndWithTheZerosBehindIt) {
  EXPECT_FALSE(is_readable("c"));
  ASSERT_TRUE(put("c"));
  const auto range = layer_.range_of("c");
  EXPECT_EQ(read(range), part(range));
  const ByteRange padded{range.offset, (range.length + 511) / 512 * 512};
  EXPECT_EQ(read(padded), part(padded));
  EXPECT_TRUE(store_->is_readable(padded));
  EXPECT_FALSE(store_->is_readable({.offset = range.offset - 1, .length = 10})) << "its header is not here";
  EXPECT_FALSE(store_->is_readable({.offset = padded.end(), .length = 1}));
  EXPECT_EQ(store_->present_bytes(), range.length);
  EXPECT_FALSE(store_->complete());
  EXPECT_FALSE(store_->keep_whole());
}

TEST_F(SpanStoreUnitsTest, SpansAndUnitsTogetherMakeARange) {
  const auto spans = spans_of("c");
  ASSERT_EQ(spans.size(), 3u);
  ASSERT_TRUE(put("c"));
  ASSERT_TRUE(store_->put(spans.back(), span(spans.back())));
  const auto from = layer_.range_of("c").offset;
  const ByteRange both{from, layer_.map->spans[spans.back()].stream_range.end() - from};
  EXPECT_EQ(read(both), part(both));
  EXPECT_THAT(store_->missing_spans({.offset = from - 1, .length = 2}, false), ElementsAre(spans.front()));
  EXPECT_THAT(store_->missing_spans({.offset = from, .length = 1'000}, false), IsEmpty());
}

TEST_F(SpanStoreUnitsTest, HeadersAreNotMissedByWhoWantsContents) {
  const auto first = layer_.map->spans[0].stream_range;
  ASSERT_TRUE(put("a"));
  EXPECT_THAT(store_->missing_spans(first, true), ElementsAre(0u));
  ASSERT_TRUE(put("b"));
  ASSERT_TRUE(put("c"));
  EXPECT_THAT(store_->missing_spans(first, true), IsEmpty());
  EXPECT_THAT(store_->missing_spans(first, false), ElementsAre(0u));
  EXPECT_FALSE(store_->complete());
}

TEST_F(SpanStoreUnitsTest, WhatIsRecordedIsThereAfterARestartAndNothingElse) {
  ASSERT_TRUE(put("a"));
  ASSERT_TRUE(put("c"));
  store_->sync();
  open();
  EXPECT_EQ(read(layer_.range_of("a")), part(layer_.range_of("a")));
  EXPECT_EQ(read(layer_.range_of("c")), part(layer_.range_of("c")));
  EXPECT_FALSE(is_readable("b"));
}

TEST_F(SpanStoreUnitsTest, UnitsOfOtherEntriesAreNotBelieved) {
  ASSERT_TRUE(put("a"));
  ASSERT_TRUE(store_->put(3, span(3)));
  store_->sync();
  auto other = layer_.entries;
  other.entries.pop_back();
  open(&other);
  EXPECT_FALSE(is_readable("a"));
  EXPECT_TRUE(store_->is_readable(3)) << "the map vouches for it";
  open();
  EXPECT_FALSE(is_readable("a")) << "nor when the first ones come back";
}

TEST_F(SpanStoreUnitsTest, UnitsGoWithDataThatIsThrownAway) {
  ASSERT_TRUE(put("a"));
  store_->sync();
  store_.reset();
  write_file_atomically(dir_ / "layer/presence", as_bytes("no log"));
  open();
  EXPECT_FALSE(is_readable("a"));
  ASSERT_TRUE(put("a"));
  store_->sync();
  store_.reset();
  std::filesystem::remove(dir_ / "layer/data");
  open();
  EXPECT_FALSE(is_readable("a"));
}

TEST_F(SpanStoreUnitsTest, ADamagedTableIsMadeAnewAndItsUnitsAreForgotten) {
  ASSERT_TRUE(put("a"));
  store_->sync();
  store_.reset();
  auto table = read_file(dir_ / "layer/units");
  table[200] ^= std::byte(1);
  write_file_atomically(dir_ / "layer/units", table);
  open();
  ASSERT_NE(store_->units(), nullptr);
  EXPECT_FALSE(is_readable("a"));
}

TEST_F(SpanStoreUnitsTest, EvictingASpanTakesTheUnitsThatTouchItAndFreesThem) {
  for (const auto* path : {"a", "c", "d"}) ASSERT_TRUE(put(path));
  store_->sync();
  const auto middle = spans_of("c").back();  // where d begins
  EXPECT_EQ(store_->evictable_bytes(middle), 70'000u);
  ASSERT_TRUE(store_->begin_evict(middle));
  EXPECT_FALSE(is_readable("c")) << "no longer promised";
  EXPECT_EQ(store_->finish_evict({std::uint32_t(middle)}, UINT32_MAX), kSpan);
  EXPECT_THAT(read(layer_.range_of("c")), IsEmpty());
  EXPECT_THAT(read(layer_.range_of("d")), IsEmpty());
  EXPECT_EQ(read(layer_.range_of("a")), part(layer_.range_of("a")));
  open();
  EXPECT_FALSE(is_readable("c"));
  EXPECT_TRUE(is_readable("a"));
}

TEST_F(SpanStoreUnitsTest, AUnitThatIsWantedMeanwhileStays) {
  ASSERT_TRUE(put("a"));
  ASSERT_TRUE(store_->begin_evict(0));
  EXPECT_EQ(read(layer_.range_of("a")), part(layer_.range_of("a")));  // who was told that it is there
  EXPECT_EQ(store_->finish_evict({0}, UINT32_MAX), 0u);
  EXPECT_EQ(read(layer_.range_of("a")), part(layer_.range_of("a")));
  ASSERT_TRUE(store_->begin_evict(0));
  ASSERT_TRUE(store_->put(0, span(0)));
  EXPECT_EQ(store_->finish_evict({0}, UINT32_MAX), 0u) << "it came as a span";
  EXPECT_TRUE(is_readable("a"));
}

TEST_F(SpanStoreUnitsTest, VerifyFindsAWrongUnitAndForgetsIt) {
  ASSERT_TRUE(put("a"));
  ASSERT_TRUE(put("b"));
  store_->sync();
  EXPECT_TRUE(store_->verify_unit(unit_of("a")));
  const auto data = open_file(store_->data_path(), O_RDWR);
  pwrite_all(data.get(), layer_.range_of("a").offset + 4'999, as_bytes("!"), "data");
  EXPECT_FALSE(store_->verify_unit(unit_of("a")));
  EXPECT_FALSE(is_readable("a"));
  EXPECT_TRUE(store_->verify_unit(unit_of("b")));
  open();
  EXPECT_FALSE(is_readable("a"));
  EXPECT_TRUE(is_readable("b"));
}

// Entries that name other content, or put it elsewhere, than the layer holds.
class LyingEntriesTest : public SpanStoreUnitsTest {
 protected:
  LyingEntriesTest() {
    lying_ = layer_.entries;
    lying_.entries[1].content_digest = digest_of(kLie);
    open(&lying_);
  }
  bool put_lie() { return store_->put_unit(unit_of("b"), kLie); }

  const Bytes kLie = Bytes(6'001, std::byte('!'));
  index::LayerEntries lying_;
};

TEST_F(LyingEntriesTest, NeverWriteOverASpan) {
  ASSERT_TRUE(store_->put(0, span(0)));
  put_lie();
  EXPECT_EQ(read(layer_.map->spans[0].stream_range), span(0));
  ASSERT_TRUE(store_->begin_evict(0));  // it is still in the file, and may come back
  put_lie();
  EXPECT_TRUE(store_->touch_if_readable(0));
  EXPECT_EQ(read(layer_.map->spans[0].stream_range), span(0));
  EXPECT_TRUE(store_->verify(0, layer_.map->digests[0].stream));
}

TEST_F(LyingEntriesTest, AreFoundOutByTheSpanWhichIsBelieved) {
  ASSERT_TRUE(put_lie());
  ASSERT_TRUE(put("d"));
  EXPECT_EQ(store_->contradiction(), "");
  ASSERT_TRUE(store_->put(0, span(0)));
  EXPECT_EQ(read(layer_.map->spans[0].stream_range), span(0));
  EXPECT_THAT(store_->contradiction(), HasSubstr(digest_of(lying_.encode()).to_string()));
  EXPECT_EQ(store_->units(), nullptr);
  EXPECT_FALSE(is_readable("d")) << "nothing of them is believed any more";
  EXPECT_FALSE(store_->put_unit(0, part(layer_.range_of("a"))));
}

TEST_F(LyingEntriesTest, AreNotTheSameAsADiskThatDamagesACopy) {
  ASSERT_TRUE(put("a"));
  const auto data = open_file(store_->data_path(), O_RDWR);
  pwrite_all(data.get(), layer_.range_of("a").offset, as_bytes("damaged"), "data");
  ASSERT_TRUE(store_->put(0, span(0)));
  EXPECT_EQ(store_->contradiction(), "");
  EXPECT_NE(store_->units(), nullptr);
  EXPECT_EQ(read(layer_.range_of("a")), part(layer_.range_of("a")));
}

TEST_F(SpanStoreUnitsTest, NoUnitIsWrittenWhereBytesAreUnchecked) {
  ASSERT_TRUE(store_->put(0, span(0)));
  store_->sync();
  store_.reset();
  const auto again = test::make_content_layer({{"a", test::some_stream(5'000, 1)},
                                               {"b", test::some_stream(6'001, 2)},
                                               {"c", test::some_stream(30'000, 3)},
                                               {"d", test::some_stream(40'000, 4)}},
                                              7'000);  // indexed anew, with other spans
  ASSERT_EQ(again.stream, layer_.stream);
  layer_.map = again.map;
  open();
  ASSERT_EQ(store_->state(0), State::kUnchecked);
  EXPECT_FALSE(put("a"));
  Bytes bytes(7'000);
  EXPECT_TRUE(store_->check(0, layer_.map->digests[0].stream, bytes));
}

}  // namespace
}  // namespace varve::fuse
