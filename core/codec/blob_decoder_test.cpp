#include "core/codec/blob_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/codec/span_decoder.h"
#include "testing/codec_support.h"
#include "testing/tar_support.h"

namespace varve::codec {
namespace {

using namespace test;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Bytes some_tar() {
  TarBuilder tar;
  tar.file("a.txt", as_text(text_like_bytes(300'000))).file("b", "").end();
  return to_bytes(tar.bytes());
}

Bytes decode(ByteView blob, std::size_t step, std::uint64_t limit = 1 << 30) {
  Bytes stream;
  BlobDecoder decoder("layer x", limit, [&](ByteView bytes) { append(stream, bytes); });
  feed_in_steps(decoder, blob, step);
  EXPECT_EQ(decoder.stream_bytes(), stream.size());
  return stream;
}

TEST(BlobDecoderTest, GivesTheStreamOfEveryKindOfBlobHoweverItIsCut) {
  const auto tar = some_tar();
  for (const auto& blob :
       {tar, gzip(tar), concat({gzip(ByteView(tar).first(1000)), gzip(ByteView(tar).subspan(1000))}),
        compress_zstd(tar, 3),
        concat({compress_zstd(ByteView(tar).first(5000), 3), compress_zstd(ByteView(tar).subspan(5000), 3)})}) {
    for (const std::size_t step : {1u, 511u, 512u, 100'000u, 10'000'000u}) {
      if (step == 1 && blob.size() > 200'000) continue;
      EXPECT_EQ(decode(blob, step), tar) << step;
    }
  }
}

TEST(BlobDecoderTest, TakesAnEmptyBlobForAnEmptyTar) { EXPECT_TRUE(decode({}, 1).empty()); }

TEST(BlobDecoderTest, RefusesWhatIsNoLayerAndWhatInflatesTooFar) {
  EXPECT_THAT([] { decode(as_bytes("<html>not a layer at all</html>"), 7); },
              ThrowsMessage<CorruptData>(HasSubstr("layer x at 0: neither")));
  const auto tar = some_tar();
  EXPECT_THAT([&] { decode(gzip(tar), 4096, tar.size() - 1); },
              ThrowsMessage<Unsupported>(HasSubstr("inflates to more than")));
  EXPECT_THROW(decode(tar, 4096, 1000), Unsupported);
}

TEST(BlobDecoderTest, NoticesABlobThatEndsTooEarly) {
  const auto blob = gzip(some_tar());
  EXPECT_THROW(decode(ByteView(blob).first(blob.size() - 9), 1000), CorruptData);
}

}  // namespace
}  // namespace varve::codec
