#include "core/codec/span_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/base/errors.h"
#include "testing/codec_support.h"
#include "testing/refusal.h"

namespace varve::codec {
namespace {

using namespace test;

TEST(SpanDecoderTest, DecodesWholeBlobsAcrossMembers) {
  const auto a = text_like_bytes(300'000), b = program_like_bytes(200'000);
  const auto blob = concat({gzip(a), gzip({}), gzip(b, 1), gzip(a, 0)});
  Bytes stream(a.size() * 2 + b.size());
  SpanDecoder decoder;
  decoder.decode_gzip({.compressed = blob, .member_header = true}, stream, "span");
  EXPECT_EQ(stream, concat({a, b, a}));
}

TEST(SpanDecoderTest, AnEmptySpanNeedsNoInput) {
  SpanDecoder decoder;
  Bytes nothing;
  EXPECT_NO_THROW(decoder.decode_gzip({}, nothing, "span"));
  EXPECT_NO_THROW(decoder.decode_zstd({}, nothing, "span"));
}

TEST(SpanDecoderTest, RefusesInputThatEndsEarly) {
  const auto content = text_like_bytes(50'000);
  const auto blob = gzip(content);
  const auto frame = compress_zstd(content, 3);
  SpanDecoder decoder;
  Bytes stream(content.size());
  for (const std::size_t size :
       {std::size_t(0), std::size_t(5), std::size_t(10), std::size_t(11), blob.size() / 2, blob.size() - 20}) {
    EXPECT_THAT(varve::test::refusal_of([&] {
                  decoder.decode_gzip({.compressed = ByteView(blob).first(size), .member_header = true}, stream,
                                      "the span");
                }),
                testing::StartsWith("the span: gzip span: "))
        << size;
  }
  for (const std::size_t size : {std::size_t(0), std::size_t(5), frame.size() / 2, frame.size() - 5}) {
    EXPECT_THAT(varve::test::refusal_of([&] { decoder.decode_zstd(ByteView(frame).first(size), stream, "the span"); }),
                testing::StartsWith("the span: zstd span: "));
  }
  Bytes too_long(content.size() + 1);
  EXPECT_THROW(decoder.decode_gzip({.compressed = blob, .member_header = true}, too_long, "span"), CorruptData);
  EXPECT_THROW(decoder.decode_zstd(frame, too_long, "span"), CorruptData);
  // After all these failures it still works.
  decoder.decode_gzip({.compressed = blob, .member_header = true}, stream, "span");
  EXPECT_EQ(stream, content);
  std::fill(stream.begin(), stream.end(), std::byte(0));
  decoder.decode_zstd(frame, stream, "span");
  EXPECT_EQ(stream, content);
}

TEST(SpanDecoderTest, RefusesImpossibleParameters) {
  const auto blob = gzip(text_like_bytes(1'000));
  Bytes stream(1'000);
  SpanDecoder decoder;
  EXPECT_THROW(decoder.decode_gzip({.compressed = blob, .bits = 8}, stream, "span"), CorruptData);
  EXPECT_THROW(decoder.decode_gzip({.compressed = blob, .bits = 1, .member_header = true}, stream, "span"),
               CorruptData);
  EXPECT_THROW(decoder.decode_gzip({.compressed = blob, .window = Bytes(32'769)}, stream, "span"), CorruptData);
}

TEST(SpanDecoderTest, ADistanceBeforeTheWindowIsRefused) {
  const auto content = text_like_bytes(400'000);
  const auto blob = gzip(content);
  KeepingGzipListener kept;
  GzipWalker walker("blob", kept);
  feed_in_steps(walker, blob, 100'000);
  const auto& [at, window] = kept.boundaries.at(1);
  const auto from = ByteView(blob).subspan(at.compressed_offset - (at.bits != 0 ? 1 : 0));
  Bytes stream(100'000);
  SpanDecoder decoder;
  EXPECT_THROW(
      decoder.decode_gzip({.compressed = from, .bits = at.bits, .window = ByteView(window).last(100)}, stream, "span"),
      CorruptData);
  EXPECT_THROW(decoder.decode_gzip({.compressed = from, .bits = at.bits, .window = {}}, stream, "span"), CorruptData);
}

TEST(SpanDecoderTest, BrokenInputNeverLeavesTheBuffers) {
  // What it decodes to does not matter here; sanitizers watch.
  const auto content = program_like_bytes(30'000);
  std::mt19937 random(5);
  SpanDecoder decoder;
  int refused = 0;
  for (int i = 0; i < 2'000; ++i) {
    auto blob = i % 2 == 0 ? gzip(content) : compress_zstd(content, 3);
    for (int flips = 0; flips < 3; ++flips) blob[random() % blob.size()] ^= std::byte(1u << random() % 8);
    Bytes stream(1 + random() % 40'000);
    try {
      if (i % 2 == 0) {
        decoder.decode_gzip({.compressed = blob, .member_header = true}, stream, "span");
      } else {
        decoder.decode_zstd(blob, stream, "span");
      }
    } catch (const CorruptData&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(SpanDecoderTest, ThreadsWithDecodersOfTheirOwnDoNotMeet) {
  // Fixed codes, whose tables are shared and made when first needed.
  const auto content = program_like_bytes(200'000);
  const auto blob = gzip(content, 6, 4);
  const auto frame = compress_zstd(content, 3);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        SpanDecoder decoder;
        Bytes stream(content.size());
        decoder.decode_gzip({.compressed = blob, .member_header = true}, stream, "span");
        right += stream == content ? 1 : 0;
        decoder.decode_zstd(frame, stream, "span");
        KeepingGzipListener kept;
        GzipWalker walker("blob", kept);
        feed_in_steps(walker, blob, 10'000);
        right += kept.stream == content && stream == content ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(right, 8);
}

TEST(CompressZstdTest, RoundTripsAnything) {
  for (const auto& [name, content] : sample_contents()) {
    for (const int level : {1, 9})
      EXPECT_EQ(decompress_zstd(compress_zstd(content, level), content.size(), "blob"), content) << name;
    EXPECT_EQ(compress_zstd(content, 9), compress_zstd(content, 9)) << "the same bytes every time";
  }
}

TEST(DecompressZstdTest, KeepsToTheLimit) {
  const auto content = Bytes(10'000'000);
  const auto frame = compress_zstd(content, 3);
  EXPECT_THROW(decompress_zstd(frame, content.size() - 1, "blob"), Unsupported);
  // A frame that does not state its size.
  if (!have_tool("zstd")) GTEST_SKIP() << "zstd is not installed";
  const auto unstated = run_tool("cat | zstd -c --no-content-size", content);
  EXPECT_EQ(decompress_zstd(unstated, content.size(), "blob").size(), content.size());
  EXPECT_THROW(decompress_zstd(unstated, content.size() - 1, "blob"), Unsupported);
}

TEST(DecompressZstdTest, ReadsSeveralFramesAndRefusesTruncation) {
  const auto content = text_like_bytes(600'000);
  const auto frame = compress_zstd(content, 3);
  EXPECT_EQ(decompress_zstd(concat({frame, frame}), 2'000'000, "blob"), concat({content, content}));
  for (const std::size_t size : {std::size_t(0), std::size_t(3), std::size_t(8), frame.size() / 2, frame.size() - 1}) {
    EXPECT_THROW(decompress_zstd(ByteView(frame).first(size), 2'000'000, "blob"), CorruptData) << size;
  }
  EXPECT_THROW(decompress_zstd(concat({frame, as_bytes("garbage")}), 2'000'000, "blob"), CorruptData);
}

}  // namespace
}  // namespace varve::codec
