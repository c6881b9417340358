#include "core/codec/zstd_walker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/codec/span_decoder.h"
#include "testing/codec_support.h"
#include "testing/refusal.h"

namespace varve::codec {
namespace {

using namespace test;

using Frames = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

struct KeepingListener final : ZstdListener {
  void on_stream_bytes(ByteView bytes) override { append(stream, bytes); }
  void on_frame(std::uint64_t compressed_offset, std::uint64_t stream_offset) override {
    EXPECT_EQ(stream.size(), stream_offset);
    frames.emplace_back(compressed_offset, stream_offset);
  }
  void on_frame_end(std::uint64_t compressed_offset) override { ends.emplace_back(compressed_offset, stream.size()); }
  Bytes stream;
  Frames frames;
  Frames ends;
};

KeepingListener walk_zstd(ByteView compressed, std::size_t step = 10'000) {
  KeepingListener kept;
  ZstdWalker walker("blob", kept);
  feed_in_steps(walker, compressed, step);
  EXPECT_EQ(walker.frames(), kept.frames.size());
  return kept;
}

std::string zstd_refusal(ByteView compressed) {
  return varve::test::refusal_of([&] { walk_zstd(compressed); });
}

Bytes skippable(ByteView payload, std::uint32_t kind = 0) {
  Bytes frame;
  append_le(frame, 0x184D2A50u + kind);
  append_le(frame, std::uint32_t(payload.size()));
  append(frame, payload);
  return frame;
}

TEST(ZstdWalkerTest, FindsTheFramesOfAnyPieceSize) {
  const auto a = text_like_bytes(700'000), b = program_like_bytes(300'000), c = random_bytes(10);
  const auto first = compress_zstd(a, 3), second = compress_zstd(b, 19), third = compress_zstd(c, 1);
  const auto blob = concat({first, second, third});
  for (const std::size_t step : {1, 3, 1000, 10'000'000}) {
    const auto kept = walk_zstd(blob, step);
    EXPECT_EQ(kept.stream, concat({a, b, c}));
    EXPECT_EQ(kept.frames,
              (Frames{{0, 0}, {first.size(), a.size()}, {first.size() + second.size(), a.size() + b.size()}}));
  }
}

TEST(ZstdWalkerTest, EveryFrameCanBeEntered) {
  Bytes blob, content;
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto piece = text_like_bytes(1 + i * 3'000, i);
    append(content, piece);
    append(blob, compress_zstd(piece, 3));
    if (i % 7 == 0) append(blob, skippable(random_bytes(i * 10), i % 16));
  }
  SpanDecoder decoder;
  for (const auto& [compressed_offset, stream_offset] : walk_zstd(blob).frames) {
    Bytes rest(content.size() - stream_offset);  // to the end: across frames, skippable ones too
    decoder.decode_zstd(ByteView(blob).subspan(compressed_offset), rest, "span");
    ASSERT_TRUE(std::equal(rest.begin(), rest.end(), content.begin() + std::ptrdiff_t(stream_offset)));
  }
}

TEST(ZstdWalkerTest, SkippableFramesGiveNoBytes) {
  const auto content = text_like_bytes(5'000);
  const auto frame = compress_zstd(content, 3);
  const auto blob = concat({skippable(Bytes(300'000)), frame, skippable({}), frame, skippable(as_bytes("footer"), 14)});
  for (const std::size_t step : {1, 4096}) {
    const auto kept = walk_zstd(blob, step);
    EXPECT_EQ(kept.stream, concat({content, content}));
    EXPECT_EQ(kept.frames.size(), 2u);
    EXPECT_EQ(kept.frames.front().first, 300'008u);
    EXPECT_EQ(kept.ends, (Frames{{300'008 + frame.size(), 5'000}, {blob.size() - 14, 10'000}}));
  }
}

// Behind the magic lies what would be the header of a skippable frame of 32 bytes: a window of 40 KiB, a size of 6477,
// a raw block of four bytes, one of the same byte 6473 times.
TEST(ZstdWalkerTest, TakesTheRestOfAHeaderForNoFrame) {
  constexpr std::string_view kFrame("\x28\xb5\x2f\xfd\x50\x2a\x4d\x18\x20\0\0\0abc\x4b\xca\0x", 19);
  const auto blob = concat({as_bytes(kFrame), skippable(Bytes(100))});
  const auto content = concat({as_bytes(std::string_view("\0abc", 4)), as_bytes(std::string(6473, 'x'))});
  Bytes decoded(content.size());
  SpanDecoder().decode_zstd(blob, decoded, "span");
  EXPECT_EQ(decoded, content);
  for (const std::size_t step : {1, 3, 6, 1000}) EXPECT_EQ(walk_zstd(blob, step).stream, content);
}

TEST(ZstdWalkerTest, ReadsWhatTheToolWrites) {
  if (!have_tool("zstd")) GTEST_SKIP() << "zstd is not installed";
  for (const auto& [name, content] : sample_contents()) {
    SCOPED_TRACE(name);
    for (const auto* command : {"zstd -c -1", "zstd -c -19 --long=27", "zstd -c -T2 -3", "zstd -c --no-check",
                                "zstd -c --check && zstd -c </dev/null"}) {
      EXPECT_EQ(walk_zstd(run_tool(command, content)).stream, content) << command;
    }
  }
}

TEST(ZstdWalkerTest, RefusesEveryTruncation) {
  const auto blob =
      concat({compress_zstd(text_like_bytes(2'000), 3), skippable(Bytes(10)), compress_zstd(text_like_bytes(50), 3)});
  const auto whole_frames = walk_zstd(blob).frames[1].first;
  for (std::size_t size = 0; size < blob.size(); ++size) {
    if (size == whole_frames || size == whole_frames - 18) continue;  // between frames
    EXPECT_THAT(zstd_refusal(ByteView(blob).first(size)),
                testing::HasSubstr(size == 0 ? "there is no frame" : "ends in the middle"))
        << size;
  }
}

TEST(ZstdWalkerTest, RefusesGarbageAsTheToolDoes) {
  const auto frame = compress_zstd(text_like_bytes(2'000), 3);
  EXPECT_THAT(zstd_refusal(concat({frame, as_bytes("garbage")})),
              testing::HasSubstr("at " + std::to_string(frame.size()) + ": no frame begins here"));
  EXPECT_THAT(zstd_refusal(concat({frame, Bytes(4)})), testing::HasSubstr("no frame begins here"));
  EXPECT_THAT(zstd_refusal(as_bytes("no zstd at all")),
              testing::HasSubstr("blob: zstd data at 0: no frame begins here"));
  EXPECT_THAT(zstd_refusal(skippable(Bytes(3))), testing::HasSubstr("there is no frame"));
}

TEST(ZstdWalkerTest, ChecksTheContent) {
  if (!have_tool("zstd")) GTEST_SKIP() << "zstd is not installed";
  const auto good = run_tool("zstd -c --check", random_bytes(1'000));
  for (const auto at : {std::size_t(500), good.size() - 1}) {
    auto bad = good;
    bad[at] ^= std::byte(1);
    EXPECT_THAT(zstd_refusal(bad), testing::HasSubstr("checksum")) << at;
  }
}

TEST(ZstdWalkerTest, RefusesWindowsThatAreTooLarge) {
  // RFC 8878 section 3.1.1.1: a frame header without content size; the exponent of the window is in the high five bits.
  Bytes blob;
  append_le(blob, 0xFD2FB528u);
  append_le(blob, std::uint8_t(0));
  append_le(blob, std::uint8_t((28 - 10) << 3));
  append_le(blob, std::uint32_t(1));  // an empty last block
  KeepingListener kept;
  ZstdWalker walker("blob", kept);
  EXPECT_THROW(walker.feed(blob), Unsupported);
}

}  // namespace
}  // namespace varve::codec
