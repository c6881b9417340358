#include "core/index/format/layer_map.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::index {
namespace {

LayerMap gzip_map() {
  LayerMap map{
      .layer_digest = digest_of("layer"),
      .diff_id = digest_of("stream"),
      .format = LayerFormat::kGzip,
      .compressed_bytes = 1000,
      .stream_bytes = 6000,
      .windows_digest = digest_of("windows"),
      .windows_bytes = 300,
      .spans = {},
      .digests = {{digest_of("a"), digest_of("A")}, {digest_of("b"), digest_of("B")}, {digest_of("c"), digest_of("C")}},
      .window_digests = {}};
  map.spans.push_back(
      {.stream_range = {0, 1000}, .compressed_range = {0, 400}, .bits = 0, .member_header = true, .window = {}});
  map.spans.push_back({.stream_range = {1000, 3000},
                       .compressed_range = {399, 300},
                       .bits = 3,
                       .member_header = false,
                       .window = {0, 200}});
  map.spans.push_back({.stream_range = {4000, 2000},
                       .compressed_range = {710, 290},
                       .bits = 0,
                       .member_header = false,
                       .window = {200, 100}});
  return map;
}

// The same as it is written today.
LayerMap map_with_records() {
  auto map = gzip_map();
  Bytes windows(300);
  for (std::size_t i = 0; i < windows.size(); ++i) windows[i] = std::byte(i);
  move_digests_to_windows(map, windows);
  return map;
}

LayerMap map_of(LayerFormat format) {
  auto map = gzip_map();
  map.format = format;
  map.windows_bytes = 0;
  map.windows_digest = {};
  for (std::size_t i = 0; i < map.spans.size(); ++i) {
    auto& span = map.spans[i];
    auto& both = map.digests[i];
    span.window = {};
    span.bits = 0;
    span.member_header = false;
    if (format == LayerFormat::kTar) {
      span.compressed_range = span.stream_range;
      both.compressed = both.stream;
    }
    if (format == LayerFormat::kZstdSingle) {
      span.compressed_range = {};
      both.compressed = {};
    }
  }
  if (format == LayerFormat::kTar) map.compressed_bytes = map.stream_bytes;
  if (format == LayerFormat::kZstd || format == LayerFormat::kZstdChunked) map.spans[1].compressed_range = {400, 299};
  return map;
}

TEST(LayerMapTest, ComesBackAsItWasWritten) {
  const auto map = gzip_map();
  const auto bytes = map.encode();
  EXPECT_EQ(LayerMap::decode(bytes, "test"), map);
  EXPECT_EQ(LayerMap::decode(bytes, "test").encode(), bytes);
  for (const auto format : {LayerFormat::kTar, LayerFormat::kZstd, LayerFormat::kZstdChunked, LayerFormat::kZstdSingle})
    EXPECT_EQ(LayerMap::decode(map_of(format).encode(), "test"), map_of(format)) << to_string(format);
}

// The second and third span follow, as what they follow is long enough.
LayerMap followed_map() {
  auto map = gzip_map();
  map.stream_bytes = 60'000;
  map.windows_bytes = 0;
  map.windows_digest = {};
  map.spans[0].stream_range = {0, kFollowedBytes};
  map.spans[1].stream_range = {kFollowedBytes, 27'231};
  map.spans[2].stream_range = {59'999, 1};
  map.spans[1].window = map.spans[2].window = {};
  map.spans[1].follows = true;
  map.spans[2].member_header = true;
  return map;
}

TEST(LayerMapTest, KnowsSpansThatFollowOthers) {
  const auto map = followed_map();
  EXPECT_EQ(LayerMap::decode(map.encode(), "test"), map);
  EXPECT_EQ(map.window_in_stream(1), (ByteRange{0, kFollowedBytes}));
  auto first = map;
  first.spans[0].follows = true;
  first.spans[0].member_header = false;
  EXPECT_THROW(first.encode(), CorruptData);
  auto member = map;
  member.spans[1].bits = 0;
  member.spans[1].compressed_range = {400, 299};
  member.spans[1].member_header = true;
  EXPECT_THROW(member.encode(), CorruptData);
  auto too_short = map;
  too_short.spans[0].stream_range.length -= 1;
  too_short.spans[1].stream_range = {kFollowedBytes - 1, 27'232};
  EXPECT_THROW(too_short.encode(), CorruptData);
  auto windowed = map;
  windowed.windows_bytes = 10;
  windowed.windows_digest = digest_of("windows");
  windowed.spans[1].window = {0, 10};
  EXPECT_THROW(windowed.encode(), CorruptData);
}

TEST(LayerMapTest, DigestsComeBackFromTheWindowsBlob) {
  auto map = gzip_map();
  Bytes windows(300);
  for (std::size_t i = 0; i < windows.size(); ++i) windows[i] = std::byte(i);
  const auto before = windows;
  move_digests_to_windows(map, windows);
  EXPECT_EQ(windows.size(), 300 + 3 * kDigestsBytes);
  EXPECT_EQ(map.windows_digest, digest_of(windows));
  EXPECT_EQ(LayerMap::decode(map.encode(), "test"), map);
  for (std::size_t span = 0; span < 3; ++span) {
    const auto range = map.record_range(span);
    const auto record = ByteView(windows).subspan(range.offset, range.length);
    EXPECT_EQ(map.digests_of(span, record), gzip_map().digests[span]);
    const auto window = gzip_map().spans[span].window;
    EXPECT_TRUE(std::ranges::equal(record.first(map.spans[span].window.length),
                                   ByteView(before).subspan(window.offset, window.length)));
  }
  EXPECT_THROW(map.digests_of(1, ByteView(windows).first(10)), CorruptData);
}

TEST(LayerMapTest, RefusesRecordsOutOfPlace) {
  auto moved = map_with_records();
  moved.spans[1].window.offset += 1;
  EXPECT_THROW(moved.encode(), CorruptData);
  auto without_block = map_with_records();
  without_block.window_digests.push_back(digest_of("one too many"));
  EXPECT_THROW(without_block.encode(), CorruptData);
  auto both = map_with_records();
  both.digests = gzip_map().digests;
  EXPECT_THROW(both.encode(), CorruptData);
}

TEST(LayerMapTest, BoundsHowManySpansFollowEachOther) {
  auto map = followed_map();
  map.spans.resize(1);
  map.digests.resize(1);
  const auto add = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto span = map.spans.back();
      span.member_header = false;
      span.follows = true;
      span.stream_range = {span.stream_range.end(), kFollowedBytes};
      span.compressed_range = {span.compressed_range.end(), 1};
      map.spans.push_back(span);
      map.digests.push_back(map.digests.back());
    }
    map.stream_bytes = map.spans.back().stream_range.end();
    map.compressed_bytes = map.spans.back().compressed_range.end();
  };
  add(kMaxFollowers);
  EXPECT_EQ(LayerMap::decode(map.encode(), "test"), map);
  add(1);
  EXPECT_THROW(map.encode(), CorruptData);
}

TEST(LayerMapTest, KnowsEmptyLayers) {
  const LayerMap empty{.layer_digest = digest_of("x"),
                       .diff_id = digest_of("y"),
                       .format = LayerFormat::kGzip,
                       .compressed_bytes = 32,
                       .stream_bytes = 0,
                       .windows_digest = {},
                       .windows_bytes = 0,
                       .spans = {},
                       .digests = {},
                       .window_digests = {}};
  EXPECT_EQ(LayerMap::decode(empty.encode(), "test"), empty);
  EXPECT_EQ(empty.spans_of({0, 0}), (std::pair<std::size_t, std::size_t>(0, 0)));
}

TEST(LayerMapTest, FindsTheSpansOfARange) {
  const auto map = gzip_map();
  EXPECT_EQ(map.span_at(0), 0u);
  EXPECT_EQ(map.span_at(999), 0u);
  EXPECT_EQ(map.span_at(1000), 1u);
  EXPECT_EQ(map.span_at(5999), 2u);
  EXPECT_EQ(map.spans_of({.offset = 999, .length = 1}), (std::pair<std::size_t, std::size_t>(0, 1)));
  EXPECT_EQ(map.spans_of({.offset = 999, .length = 2}), (std::pair<std::size_t, std::size_t>(0, 2)));
  EXPECT_EQ(map.spans_of({.offset = 0, .length = 6000}), (std::pair<std::size_t, std::size_t>(0, 3)));
  const auto [first, last] = map.spans_of({.offset = 1500, .length = 0});
  EXPECT_EQ(first, last);
}

TEST(LayerMapTest, RefusesEveryPrefixOfItself) {
  for (const auto& bytes : {gzip_map().encode(), map_with_records().encode()}) {
    for (std::size_t length = 0; length < bytes.size(); ++length)
      EXPECT_THROW(LayerMap::decode(ByteView(bytes).first(length), "test"), CorruptData) << length;
    auto longer = bytes;
    longer.push_back({});
    EXPECT_THROW(LayerMap::decode(longer, "test"), CorruptData);
  }
}

TEST(LayerMapTest, NeverReadsBackSomethingThatItsEncoderWouldNotWrite) {
  for (const auto& bytes : {gzip_map().encode(), map_with_records().encode()}) {
    for (std::size_t at = 0; at < bytes.size() * 8; ++at) {
      auto broken = bytes;
      broken[at / 8] ^= std::byte(1 << at % 8);
      try {
        EXPECT_EQ(LayerMap::decode(broken, "test").encode(), broken) << at;
      } catch (const CorruptData&) {
      }
    }
  }
}

struct MapBreakage {
  const char* name;
  void (*apply)(LayerMap&);
};

class LayerMapBreakageTest : public testing::TestWithParam<MapBreakage> {};

TEST_P(LayerMapBreakageTest, IsRefused) {
  auto map = gzip_map();
  GetParam().apply(map);
  EXPECT_THROW(map.encode(), CorruptData);
}

INSTANTIATE_TEST_SUITE_P(
    All, LayerMapBreakageTest,
    testing::Values(MapBreakage{"GapInTheStream", [](LayerMap& map) { map.spans[1].stream_range.offset = 1001; }},
                    MapBreakage{"EmptySpan", [](LayerMap& map) { map.spans[2].stream_range.length = 0; }},
                    MapBreakage{"StreamEndsBefore", [](LayerMap& map) { map.stream_bytes = 5999; }},
                    MapBreakage{"StreamEndsAfter", [](LayerMap& map) { map.stream_bytes = 6001; }},
                    MapBreakage{"CompressedOverlap", [](LayerMap& map) { map.spans[1].compressed_range.offset = 398; }},
                    MapBreakage{"SharedByteWithoutBits", [](LayerMap& map) { map.spans[1].bits = 0; }},
                    MapBreakage{"CompressedOutside", [](LayerMap& map) { map.spans[2].compressed_range.length = 291; }},
                    MapBreakage{"NoCompressedBytes", [](LayerMap& map) { map.spans[2].compressed_range.length = 0; }},
                    MapBreakage{"EightBits", [](LayerMap& map) { map.spans[1].bits = 8; }},
                    MapBreakage{"WindowOutside", [](LayerMap& map) { map.spans[2].window.offset = 201; }},
                    MapBreakage{"WindowTooLong",
                                [](LayerMap& map) {
                                  map.windows_bytes = 100'000;
                                  map.spans[2].window.length = kMaxWindowBytes + 1;
                                }},
                    MapBreakage{"HeaderAndWindow",
                                [](LayerMap& map) {
                                  map.spans[0].window = {0, 1};
                                }},
                    MapBreakage{"WindowsWithoutDigest", [](LayerMap& map) { map.windows_digest = {}; }},
                    MapBreakage{"PlainWithWindows", [](LayerMap& map) { map.format = LayerFormat::kTar; }},
                    MapBreakage{"SingleFrameWithSpans", [](LayerMap& map) { map.format = LayerFormat::kZstdSingle; }},
                    MapBreakage{"HugeStream", [](LayerMap& map) { map.stream_bytes = kMaxStreamBytes + 1; }}),
    [](const auto& info) { return info.param.name; });

TEST(LayerMapTest, BoundsMemoryByTheBytesThatAreThere) {
  auto bytes = gzip_map().encode();
  store_le(bytes.data() + 8 + 96 + 24, std::uint64_t(kMaxSpans));  // the number of spans
  EXPECT_THROW(LayerMap::decode(bytes, "test"), CorruptData);
}

TEST(LayerMapTest, NamesFormatsAsTheCommandLineDoes) {
  EXPECT_EQ(to_string(LayerFormat::kTar), "tar");
  EXPECT_EQ(to_string(LayerFormat::kZstdChunked), "zstd-chunked");
  EXPECT_EQ(to_string(LayerFormat::kZstdSingle), "zstd-single");
}

}  // namespace
}  // namespace varve::index
