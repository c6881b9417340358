#include "indexer/layer_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/errors.h"
#include "core/base/threads/cancel.h"
#include "core/codec/span_decoder.h"
#include "core/index/span_reader.h"
#include "testing/codec_support.h"
#include "testing/elf_file.h"
#include "testing/scripted_repository.h"
#include "testing/tar_support.h"

namespace varve::indexer {
namespace {

using codec::test::gzip;
using codec::test::TarBuilder;
using index::LayerFormat;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A tar with small files, an incompressible one, a well compressible one of several MiB and an empty one.
Bytes sample_tar(std::size_t large_bytes = 6'000'000) {
  TarBuilder tar;
  tar.header({.name = "dir/", .typeflag = '5'});
  for (int i = 0; i < 200; ++i)
    tar.file("dir/f" + std::to_string(i) + ".py",
             as_text(codec::test::text_like_bytes(std::size_t(i) * 97, std::uint32_t(i))));
  tar.file("large.bin", as_text(codec::test::program_like_bytes(large_bytes, 3)));
  tar.file("noise.bin", as_text(codec::test::random_bytes(1'500'000, 4)));
  tar.file("empty", "");
  return to_bytes(tar.end().bytes());
}

class LayerPassTest : public ::testing::Test {
 protected:
  IndexedLayer run(ByteView blob, ByteView stream, const LayerPassOptions& options = {}) {
    descriptor_ = repository_.serve(to_bytes(blob));
    return index_layer(repository_, descriptor_, digest_of(stream), options, {progress_, CancelFlag()});
  }

  // Decodes every span on its own from what the map says, and compares all of it with the stream.
  static void expect_decodes(const IndexedLayer& indexed, ByteView blob, ByteView stream) {
    const auto& map = indexed.map;
    EXPECT_EQ(map.diff_id, digest_of(stream));
    EXPECT_EQ(map.stream_bytes, stream.size());
    EXPECT_EQ(map.compressed_bytes, blob.size());
    EXPECT_EQ(index::LayerMap::decode(map.encode(), "map"), map);
    codec::SpanDecoder decoder;
    for (std::size_t i = 0; i < map.spans.size(); ++i) {
      const auto& span = map.spans[i];
      const auto part = [](ByteView of, ByteRange range) { return of.subspan(range.offset, range.length); };
      const auto wanted = part(stream, span.stream_range);
      if (map.format == LayerFormat::kZstdSingle) {
        EXPECT_EQ(digest_of(wanted), map.digests[i].stream);
        continue;
      }
      Bytes decoded(span.stream_range.length);
      index::decode_span(map, i,
                         {.compressed = part(blob, span.compressed_range),
                          .record = part(indexed.windows, map.record_range(i)),
                          .before = span.follows ? part(stream, map.window_in_stream(i)) : ByteView()},
                         decoded, decoder);
      EXPECT_TRUE(std::ranges::equal(decoded, wanted)) << "span at " << span.stream_range.offset;
    }
  }

  void expect_indexes(ByteView blob, ByteView stream, LayerFormat format, std::size_t min_spans) {
    const auto indexed = run(blob, stream);
    EXPECT_EQ(indexed.map.format, format);
    EXPECT_GE(indexed.map.spans.size(), min_spans);
    expect_decodes(indexed, blob, stream);
    expect_entries(indexed, stream);
  }

  static void expect_entries(const IndexedLayer& indexed, ByteView stream) {
    const auto& entries = indexed.entries.entries;
    ASSERT_EQ(entries.size(), 204u);
    for (const auto& entry : entries) {
      if (entry.size == 0) continue;
      const auto content = stream.subspan(entry.runs.at(0).stream_offset, entry.size);
      EXPECT_EQ(entry.content_digest, digest_of(content)) << entry.path;
      EXPECT_EQ(entry.chunk_digests.size(),
                entry.size > index::kChunkBytes ? (entry.size - 1) / index::kChunkBytes + 1 : 0);
      for (std::size_t i = 0; i < entry.chunk_digests.size(); ++i)
        EXPECT_EQ(entry.chunk_digests[i],
                  digest_of(content.subspan(
                      i * index::kChunkBytes,
                      std::min<std::size_t>(index::kChunkBytes, content.size() - i * index::kChunkBytes))));
    }
    EXPECT_EQ(index::LayerEntries::decode(indexed.entries.encode(), "entries").entries, entries);
  }

  test::ScriptedRepository repository_;
  oci::Descriptor descriptor_;
  Progress progress_;
};

// Many spans, so that every kind of boundary is used.
LayerPassOptions fine() {
  LayerPassOptions options;
  options.policy = {.span_price_bytes = 100, .max_stream_bytes = 256 * 1024};
  return options;
}

TEST_F(LayerPassTest, KeepsTheElfFactsOfFilesSparseOnesIncluded) {
  const test::ElfFile file{.size = 1'000'000, .dynamic_at = 999'000, .sections = {".nv_fatbin"}};
  const auto content = file.make();
  TarBuilder tar;
  tar.file("script", "#!/bin/sh").file("lib.so", as_text(content)).file("empty", "");
  // What lies between the head and the end are zeros.
  const auto data = std::string(as_text(content).substr(0, 8192)) + std::string(as_text(content).substr(990'000));
  tar.pax({{"GNU.sparse.major", "0"},
           {"GNU.sparse.minor", "1"},
           {"GNU.sparse.name", "sparse.so"},
           {"GNU.sparse.size", "1000000"},
           {"GNU.sparse.map", "0,8192,990000,10000"}});
  tar.header({.name = "GNUSparseFile.0/sparse.so", .size = data.size()})
      .data(as_bytes(data))
      .header({.name = "link.so", .typeflag = '1', .link_name = "lib.so"})
      .end();
  const auto indexed = run(gzip(tar.bytes()), tar.bytes());
  EXPECT_TRUE(indexed.entries.has_elf_facts);
  const auto& entries = indexed.entries.entries;
  ASSERT_EQ(entries.size(), 5u);
  ASSERT_TRUE(entries[1].elf && entries[3].elf);
  EXPECT_EQ(entries[1].elf->soname, "libme.so.1");
  EXPECT_EQ(entries[1].elf->needed, (std::vector<std::string>{"libm.so.6", "libc.so.6"}));
  EXPECT_TRUE(entries[1].elf->device_code);
  EXPECT_EQ(*entries[3].elf, *entries[1].elf);
  EXPECT_EQ(entries[3].content_digest, entries[1].content_digest);
  for (const auto i : {0, 2, 4}) EXPECT_EQ(entries[std::size_t(i)].elf, nullptr) << i;
}

TEST_F(LayerPassTest, IndexesGzipOfAllLevels) {
  const auto tar = sample_tar();
  for (const int level : {1, 6, 9}) expect_indexes(gzip(tar, level), tar, LayerFormat::kGzip, 2);
}

TEST_F(LayerPassTest, EverySpanOfAFineCutDecodes) {
  const auto tar = sample_tar();
  for (const auto& blob : {gzip(tar, 6), gzip(tar, 1), gzip(tar, 0), codec::test::gzip_with_flushes(tar, 10'000),
                           codec::test::gzip_with_flushes(tar, 70'000, true)}) {
    const auto indexed = run(blob, tar, fine());
    EXPECT_GE(indexed.map.spans.size(), 20u);
    expect_decodes(indexed, blob, tar);
  }
}

TEST_F(LayerPassTest, IndexesGzipOfManyMembersWithoutWindowsAtTheirStarts) {
  const auto tar = sample_tar();
  Bytes blob;
  std::vector<std::uint64_t> member_starts;
  for (std::size_t at = 0; at < tar.size(); at += 300'000) {
    member_starts.push_back(at);
    append(blob, gzip(ByteView(tar).subspan(at, std::min<std::size_t>(300'000, tar.size() - at))));
  }
  const auto indexed = run(blob, tar, fine());
  expect_decodes(indexed, blob, tar);
  std::size_t at_members = 0;
  for (const auto& span : indexed.map.spans) {
    if (!span.member_header) continue;
    ++at_members;
    EXPECT_TRUE(std::ranges::binary_search(member_starts, span.stream_range.offset));
    EXPECT_EQ(span.window.length, 0u);
  }
  EXPECT_GE(at_members, 10u);
}

TEST_F(LayerPassTest, IndexesWhatTheToolsOfTheWildMake) {
  const auto tar = sample_tar();
  for (const auto& [tool, command, format, spans] :
       std::initializer_list<std::tuple<const char*, const char*, LayerFormat, std::size_t>>{
           {"gzip", "gzip -9 -c", LayerFormat::kGzip, 2},
           {"pigz", "pigz -p2 -c", LayerFormat::kGzip, 2},
           {"pigz", "pigz -i -p2 -c", LayerFormat::kGzip, 2},
           {"zstd", "zstd -q -c", LayerFormat::kZstdSingle, 8},
           {"zstd", "zstd -q -19 -T2 -c", LayerFormat::kZstdSingle, 8}}) {
    if (!codec::test::have_tool(tool)) continue;
    SCOPED_TRACE(command);
    expect_indexes(codec::test::run_tool(command, tar), tar, format, spans);
  }
}

TEST_F(LayerPassTest, IndexesPlainTar) {
  const auto tar = sample_tar();
  expect_indexes(tar, tar, LayerFormat::kTar, 2);
  EXPECT_TRUE(run(tar, tar, fine()).windows.empty());
}

// A frame of the content before each skippable one, and a large skippable one at the end and in the middle.
TEST_F(LayerPassTest, IndexesZstdFramesAndLeavesSkippableOnesOut) {
  const auto tar = sample_tar();
  const auto skippable = [](std::size_t bytes) {
    Bytes frame;
    append_le(frame, std::uint32_t(0x184D2A50));
    append_le(frame, std::uint32_t(bytes));
    frame.resize(frame.size() + bytes, std::byte(1));
    return frame;
  };
  Bytes blob = skippable(20);
  std::uint64_t content_end = 0;
  int frame = 0;
  for (std::size_t at = 0; at < tar.size(); at += 100'000, ++frame) {
    append(blob, codec::compress_zstd(ByteView(tar).subspan(at, std::min<std::size_t>(100'000, tar.size() - at)), 3));
    content_end = blob.size();
    if (frame == 5) append(blob, skippable(3'000'000));
    if (frame % 7 == 0) append(blob, skippable(300));
  }
  append(blob, skippable(5'000'000));
  const auto indexed = run(blob, tar, fine());
  EXPECT_EQ(indexed.map.format, LayerFormat::kZstd);
  EXPECT_GE(indexed.map.spans.size(), 20u);
  expect_decodes(indexed, blob, tar);
  EXPECT_EQ(indexed.map.spans.back().compressed_range.end(), content_end);
  for (const auto& span : indexed.map.spans) EXPECT_LT(span.compressed_range.length, 1'000'000u);
}

TEST_F(LayerPassTest, AFrameTooLongForSpansMakesTheLayerASingleOne) {
  const auto tar = sample_tar(40'000'000);
  Bytes blob = codec::compress_zstd(ByteView(tar).first(50'000), 1);
  append(blob, codec::compress_zstd(ByteView(tar).subspan(50'000), 1));
  const auto indexed = run(blob, tar);
  EXPECT_EQ(indexed.map.format, LayerFormat::kZstdSingle);
  EXPECT_EQ(indexed.map.spans.size(), (tar.size() + 1048575) / 1048576);
  EXPECT_EQ(repository_.reads_of(descriptor_.digest), 2u) << "known too late: read again";
  expect_decodes(indexed, blob, tar);
  expect_entries(indexed, tar);
}

TEST_F(LayerPassTest, EmptyLayersHaveNoSpans) {
  const Bytes end(1024);
  for (const auto& [blob, stream] : std::initializer_list<std::pair<Bytes, Bytes>>{
           {Bytes(), Bytes()}, {gzip(Bytes()), Bytes()}, {gzip(end), end}, {end, end}}) {
    const auto indexed = run(blob, stream);
    EXPECT_EQ(indexed.map.spans.size(), stream.empty() ? 0u : 1u);
    EXPECT_TRUE(indexed.entries.entries.empty());
    expect_decodes(indexed, blob, stream);
  }
}

TEST_F(LayerPassTest, LongRunsOfZerosAreOneSpanOrFew) {
  TarBuilder tar;
  tar.file("zeros", std::string(60'000'000, '\0'));
  tar.end();
  const auto stream = to_bytes(tar.bytes());
  const auto blob = gzip(stream, 9);
  const auto indexed = run(blob, stream);
  EXPECT_LE(indexed.map.spans.size(), 16u);
  expect_decodes(indexed, blob, stream);
}

TEST_F(LayerPassTest, TrailingGarbageAndPaddingDoNotDisturb) {
  const auto tar = sample_tar();
  auto blob = gzip(tar);
  blob.resize(blob.size() + 3'000'000);
  const auto indexed = run(blob, tar, fine());
  expect_decodes(indexed, blob, tar);
}

TEST_F(LayerPassTest, TheLabelDoesNotMatter) {
  const auto tar = sample_tar();
  descriptor_ = repository_.serve(tar);
  descriptor_.media_type = "application/vnd.oci.image.layer.v1.tar+gzip";
  EXPECT_EQ(index_layer(repository_, descriptor_, digest_of(tar), {}, {progress_, CancelFlag()}).map.format,
            LayerFormat::kTar);
}

TEST_F(LayerPassTest, TheSameLayerGivesTheSameBytes) {
  const auto tar = sample_tar();
  const auto blob = gzip(tar);
  const auto first = run(blob, tar, fine());
  const auto second = run(blob, tar, fine());
  EXPECT_EQ(first.map, second.map);
  EXPECT_EQ(first.windows, second.windows);
  EXPECT_EQ(first.entries.encode(), second.entries.encode());
}

TEST_F(LayerPassTest, ALayerThatIsBeingWrittenGivesTheSame) {
  const auto tar = sample_tar();
  for (const auto& blob : {gzip(tar), tar}) {
    const auto read = run(blob, tar);
    WrittenLayerPass pass("new layer", {});
    for (std::size_t at = 0; at < blob.size(); at += 70'001)
      pass.feed(ByteView(blob).subspan(at, std::min<std::size_t>(70'001, blob.size() - at)));
    const auto written = pass.finish(digest_of(blob), digest_of(tar));
    ASSERT_TRUE(written);
    EXPECT_EQ(written->map, read.map);
    EXPECT_EQ(written->windows, read.windows);
    EXPECT_EQ(written->entries.encode(), read.entries.encode());
  }
}

TEST_F(LayerPassTest, OneThatIsBeingWrittenHandsOnWhatIsWrongAndCanBeGivenUp) {
  const auto tar = sample_tar();
  const auto blob = gzip(tar);
  WrittenLayerPass given_up("new layer", {});
  given_up.feed(blob);
  WrittenLayerPass other("new layer", {});
  other.feed(blob);
  EXPECT_THROW(other.finish(digest_of(blob), digest_of("other")), CorruptData);
  WrittenLayerPass cut("new layer", {});
  cut.feed(ByteView(blob).first(blob.size() / 2));
  EXPECT_THAT([&] { cut.finish(digest_of(blob), digest_of(tar)); }, ThrowsMessage<CorruptData>(HasSubstr("new layer")));
  WrittenLayerPass unknown("new layer", {});
  const auto noise = codec::test::random_bytes(20'000'000);
  EXPECT_THROW(
      {
        unknown.feed(noise);
        unknown.finish(digest_of(noise), digest_of(noise));
      },
      CorruptData);
}

TEST_F(LayerPassTest, NamesALayerWhoseContentIsNotWhatTheConfigSays) {
  const auto tar = sample_tar();
  const auto blob = gzip(tar);
  descriptor_ = repository_.serve(blob);
  EXPECT_THAT(
      [&] {
        index_layer(repository_, descriptor_, digest_of("other"), {}, {progress_, CancelFlag()});
      },
      ThrowsMessage<CorruptData>(testing::AllOf(HasSubstr(descriptor_.digest.to_string()), HasSubstr("diff_id"))));
}

TEST_F(LayerPassTest, NamesALayerWithAFlippedBitWhereverItIs) {
  const auto tar = sample_tar();
  const auto blob = gzip(tar);
  descriptor_ = repository_.serve(blob);
  for (const auto at : {std::size_t(0), std::size_t(20), blob.size() / 3, blob.size() - 12, blob.size() - 1}) {
    repository_.flip(descriptor_.digest, at);
    EXPECT_THAT(
        [&] {
          index_layer(repository_, descriptor_, digest_of(tar), {}, {progress_, CancelFlag()});
        },
        ThrowsMessage<CorruptData>(HasSubstr(descriptor_.digest.to_string())))
        << at;
  }
}

TEST_F(LayerPassTest, NamesALayerThatEndsTooEarly) {
  const auto tar = sample_tar();
  const auto whole = gzip(tar);
  const auto cut = ByteView(whole).first(whole.size() / 2);
  EXPECT_THAT([&] { run(cut, tar); }, ThrowsMessage<CorruptData>(HasSubstr(digest_of(cut).to_string())));
  const auto cut_tar = ByteView(tar).first(tar.size() / 2);
  EXPECT_THAT([&] { run(gzip(cut_tar), cut_tar); }, ThrowsMessage<CorruptData>(HasSubstr("layer sha256:")));
}

TEST_F(LayerPassTest, RefusesALayerThatIsNothingWeKnow) {
  EXPECT_THAT([&] { run(codec::test::random_bytes(5'000), Bytes()); },
              ThrowsMessage<CorruptData>(HasSubstr("neither gzip nor zstd nor tar")));
}

TEST_F(LayerPassTest, RefusesALayerThatInflatesBeyondTheLimit) {
  const auto tar = sample_tar();
  LayerPassOptions options;
  options.max_stream_bytes = tar.size() - 1;
  EXPECT_THAT([&] { run(gzip(tar), tar, options); }, ThrowsMessage<Unsupported>(HasSubstr("inflates")));
  options.max_stream_bytes = tar.size();
  EXPECT_NO_THROW(run(gzip(tar), tar, options));
}

TEST_F(LayerPassTest, StopsWhenTold) {
  const auto tar = sample_tar();
  const auto blob = gzip(tar);
  descriptor_ = repository_.serve(blob);
  CancelFlag cancel;
  cancel.cancel();
  EXPECT_THROW(index_layer(repository_, descriptor_, digest_of(tar), {}, {progress_, cancel}), Cancelled);
}

TEST_F(LayerPassTest, HandsOnTheFailureOfTheRepository) {
  const auto tar = sample_tar();
  descriptor_ = repository_.serve(gzip(tar));
  repository_.fail_next(1, test::ScriptedRepository::Failure::kTemporary, 500'000);
  EXPECT_THROW(index_layer(repository_, descriptor_, digest_of(tar), {}, {progress_, CancelFlag()}), TemporaryError);
}

TEST_F(LayerPassTest, DigestsSparseFilesWithTheirHoles) {
  TarBuilder tar;
  const std::string data(1000, 'x');
  tar.pax({{"GNU.sparse.major", "0"},
           {"GNU.sparse.minor", "1"},
           {"GNU.sparse.name", "sparse"},
           {"GNU.sparse.size", "100000"},
           {"GNU.sparse.map", "5000,400,20000,600"}});
  tar.header({.name = "GNUSparseFile.0/sparse", .size = data.size()}).data(data).end();
  const auto stream = to_bytes(tar.bytes());
  const auto indexed = run(gzip(stream), stream);
  ASSERT_EQ(indexed.entries.entries.size(), 1u);
  std::string content(100'000, '\0');
  content.replace(5'000, 400, 400, 'x');
  content.replace(20'000, 600, 600, 'x');
  EXPECT_EQ(indexed.entries.entries[0].size, content.size());
  EXPECT_EQ(indexed.entries.entries[0].content_digest, digest_of(content));
}

TEST_F(LayerPassTest, DoesNotDigestHolesWithoutEnd) {
  TarBuilder tar;
  tar.pax({{"GNU.sparse.major", "0"},
           {"GNU.sparse.minor", "1"},
           {"GNU.sparse.name", "sparse"},
           {"GNU.sparse.size", "100000000000000"},
           {"GNU.sparse.map", "0,3"}});
  tar.header({.name = "GNUSparseFile.0/sparse", .size = 3}).data("abc").file("next", "content").end();
  const auto stream = to_bytes(tar.bytes());
  const auto indexed = run(gzip(stream), stream);
  ASSERT_EQ(indexed.entries.entries.size(), 2u);
  EXPECT_EQ(indexed.entries.entries[0].content_digest, Digest());
  EXPECT_EQ(indexed.entries.entries[1].content_digest, digest_of("content"));
}

}  // namespace
}  // namespace varve::indexer
