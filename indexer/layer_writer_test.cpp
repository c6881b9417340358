#include "indexer/layer_writer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/codec/span_decoder.h"
#include "core/codec/zstd_walker.h"
#include "indexer/content_chunker.h"
#include "testing/codec_support.h"
#include "testing/tar_support.h"

namespace varve::indexer {
namespace {

using codec::test::TarBuilder;
using nlohmann::json;

Bytes noise(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (auto& byte : bytes) byte = std::byte(random());
  return bytes;
}

TEST(ContentChunkerTest, CutsAreAContract) {
  const auto content = noise(20 << 20, 7);
  std::vector<std::size_t> cuts;
  ByteView rest = content;
  while (!rest.empty()) {
    const auto cut = next_cut(rest);
    EXPECT_FALSE(cut.zeros);
    EXPECT_LE(cut.bytes, kMaxChunkBytes);
    cuts.push_back(cut.bytes);
    rest = rest.subspan(cut.bytes);
  }
  // A change here makes every large file of every image new: it needs a reason.
  const std::vector<std::size_t> expected{1050398, 2173700, 1112250, 1054058, 1134601, 1487711, 2399166,
                                          2330689, 826421,  1107209, 1179494, 493749,  2518693, 2103381};
  EXPECT_EQ(cuts, expected);
}

TEST(ContentChunkerTest, AnInsertionMovesOnlyTheCutsAroundIt) {
  auto content = noise(32 << 20, 3);
  const auto digests_of = [](ByteView rest) {
    std::set<Digest> digests;
    while (!rest.empty()) {
      const auto cut = next_cut(rest);
      digests.insert(digest_of(rest.first(cut.bytes)));
      rest = rest.subspan(cut.bytes);
    }
    return digests;
  };
  const auto before = digests_of(content);
  content.insert(content.begin() + (10 << 20), std::byte('x'));
  std::size_t shared = 0;
  for (const auto& digest : digests_of(content)) shared += before.count(digest);
  EXPECT_GE(shared + 3, before.size());
}

TEST(ContentChunkerTest, TellsZerosApart) {
  Bytes content(kZeroBlockBytes * 5 + 100);
  EXPECT_EQ(next_cut(content).bytes, kZeroBlockBytes * 5);
  EXPECT_TRUE(next_cut(content).zeros);
  content[0] = std::byte(1);
  EXPECT_EQ(next_cut(content).bytes, kZeroBlockBytes);
  EXPECT_FALSE(next_cut(content).zeros);
  EXPECT_EQ(next_cut(ByteView(content).first(100)).bytes, 100u);
  EXPECT_EQ(next_cut(Bytes(kMaxChunkBytes * 2)).bytes, kMaxChunkBytes);
}

struct Written {
  WrittenLayer layer;
  Bytes blob;
};

Written write(ByteView tar, LayerWriterOptions options = {}, std::size_t step = 100'000) {
  Written written;
  LayerWriter writer("layer", options, [&](ByteView bytes) { append(written.blob, bytes); });
  for (std::size_t at = 0; at < tar.size(); at += step) writer.feed(tar.subspan(at, std::min(step, tar.size() - at)));
  written.layer = writer.finish();
  EXPECT_EQ(written.layer.digest, digest_of(written.blob));
  EXPECT_EQ(written.layer.compressed_bytes, written.blob.size());
  EXPECT_EQ(written.layer.diff_id, digest_of(tar));
  EXPECT_EQ(written.layer.stream_bytes, tar.size());
  return written;
}

// What the annotations point at, checked against their digests, as JSON text.
std::string table_of(const Written& written, std::string_view kind) {
  const auto& annotations = written.layer.annotations;
  const auto position = annotations.at("io.github.containers.zstd-chunked." + std::string(kind) + "-position");
  std::uint64_t offset = 0, size = 0, content = 0;
  EXPECT_GE(std::sscanf(position.c_str(), "%lu:%lu:%lu", &offset, &size, &content), 3);
  const auto packed = ByteView(written.blob).subspan(offset, size);
  if (kind == "manifest") {
    EXPECT_EQ(digest_of(packed).to_string(), annotations.at("io.github.containers.zstd-chunked.manifest-checksum"));
  }
  const auto text = codec::decompress_zstd(packed, content, "table");
  EXPECT_EQ(text.size(), content);
  return std::string(as_text(text));
}

// Every chunk decoded from where the table says it lies: path -> content.
std::map<std::string, Bytes> contents_of(const Written& written) {
  const auto toc = json::parse(table_of(written, "manifest"));
  std::map<std::string, Bytes> contents;
  std::map<std::string, std::string> digests;
  const auto& entries = toc["entries"];
  codec::SpanDecoder decoder;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& entry = entries[i];
    if (!entry.contains("offset")) continue;
    const auto name = entry["name"].get<std::string>();
    if (entry["type"] == "reg") digests[name] = entry["digest"];
    const auto size =
        entry.contains("chunkSize") ? entry["chunkSize"].get<std::size_t>() : entry["size"].get<std::size_t>();
    const auto offset = entry["offset"].get<std::size_t>();
    Bytes content(size);
    decoder.decode_zstd(ByteView(written.blob).subspan(offset), content, name);
    if (entry.contains("chunkDigest")) {
      EXPECT_EQ(digest_of(content).to_string(), entry["chunkDigest"]);
    }
    if (entry.value("chunkType", "") == "zeros") {
      EXPECT_EQ(content, Bytes(size));
    }
    EXPECT_EQ(entry.value("chunkOffset", std::size_t(0)), contents[name].size());
    append(contents[name], content);
  }
  for (const auto& [name, digest] : digests) EXPECT_EQ(digest_of(contents[name]).to_string(), digest) << name;
  return contents;
}

// The tar put together again from the tar-split and the contents.
Bytes assembled(const Written& written, const std::map<std::string, Bytes>& contents) {
  const auto lines = table_of(written, "tarsplit");
  EXPECT_EQ(json::parse(table_of(written, "manifest"))["tarSplitDigest"].get<std::string>().size(), 71u);
  Bytes tar;
  std::size_t number = 0;
  for (std::size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
    const auto line = json::parse(lines.substr(at, lines.find('\n', at) - at));
    EXPECT_EQ(line["position"], number++);
    if (line["type"] == 2) {
      append(tar, as_bytes(*base64_decode(line["payload"].get<std::string>())));
    } else if (line.contains("size")) {
      append(tar, contents.at(line["name"]));
    }
  }
  return tar;
}

Bytes noise_with_zeros() {
  auto content = noise(9 << 20, 5);
  std::fill_n(content.begin() + (3 << 20), 2 << 20, std::byte(0));
  return content;
}

TarBuilder rich_tar() {
  TarBuilder tar;
  tar.header({.name = "dir/", .typeflag = '5', .mode = "0000755"});
  tar.file("dir/empty", "");
  tar.file("dir/small", "text of a small file\n");
  tar.header({.name = "dir/link", .typeflag = '2', .link_name = "small"});
  tar.header({.name = "dir/hard", .typeflag = '1', .link_name = "dir/small"});
  tar.pax(
      {{"mtime", "1700000000.125"}, {"atime", "1700000001.5"}, {"path", "dir/näme"}, {"SCHILY.xattr.user.a", "value"}});
  tar.header({.name = "short", .size = 5, .mode = "0100640"}).data("five.");
  const auto large = noise_with_zeros();
  tar.header({.name = "dir/large", .size = large.size()}).data(large);
  tar.file("last", std::string(300'000, 'z'));
  return tar;
}

TEST(LayerWriterTest, WhatTheTableNamesIsTheContentAndTheSplitGivesTheTarBack) {
  const auto tar = rich_tar().end();
  const auto written = write(tar.bytes());
  EXPECT_EQ(written.layer.without_table, "");
  EXPECT_EQ(written.layer.media_type, "application/vnd.oci.image.layer.v1.tar+zstd");
  const auto contents = contents_of(written);
  EXPECT_EQ(contents.size(), 4u);
  EXPECT_EQ(contents.at("dir/large"), noise_with_zeros());
  EXPECT_EQ(assembled(written, contents), to_bytes(tar.bytes()));
  EXPECT_EQ(codec::decompress_zstd(written.blob, tar.bytes().size(), "blob"), to_bytes(tar.bytes()));

  const auto toc = json::parse(table_of(written, "manifest"));
  const auto entry_of = [&](std::string_view name) {
    for (const auto& entry : toc["entries"]) {
      if (entry["name"] == name) return entry;
    }
    return json();
  };
  EXPECT_EQ(entry_of("dir/"),
            json::parse(R"({"type":"dir","name":"dir/","mode":493,"modtime":"1970-01-01T00:00:00Z"})"));
  EXPECT_EQ(entry_of("dir/link")["linkName"], "small");
  EXPECT_EQ(entry_of("dir/hard")["type"], "hardlink");
  const auto named = entry_of("dir/näme");
  EXPECT_EQ(named["mode"], 0100640) << "as the header has it";
  EXPECT_EQ(named["modtime"], "2023-11-14T22:13:20.125Z");
  EXPECT_EQ(named["accesstime"], "2023-11-14T22:13:21.5Z");
  EXPECT_EQ(named["xattrs"]["user.a"], base64_encode("value"));
}

TEST(LayerWriterTest, FramesTellHeadersFromContents) {
  const auto tar = rich_tar().end();
  const auto written = write(tar.bytes());
  struct Frames final : codec::ZstdListener {
    void on_stream_bytes(ByteView) override {}
    void on_frame(std::uint64_t, std::uint64_t stream_offset) override { starts.insert(stream_offset); }
    std::set<std::uint64_t> starts;
  } frames;
  codec::ZstdWalker walker("blob", frames);
  walker.feed(written.blob);
  walker.finish();
  for (const auto& kept : codec::test::parse_tar(tar.bytes())) {
    if (kept.entry.size == 0) continue;
    EXPECT_TRUE(frames.starts.contains(kept.entry.data_stream_offset)) << kept.entry.name;
    EXPECT_TRUE(frames.starts.contains(kept.entry.data_stream_offset + kept.entry.size)) << kept.entry.name;
  }
}

TEST(LayerWriterTest, TheSameBytesAtAnyNumberOfJobsAndAnyCutOfTheInput) {
  const auto tar = rich_tar().end();
  for (const auto format : {WrittenFormat::kZstdChunked, WrittenFormat::kGzip}) {
    const auto first = write(tar.bytes(), {.format = format, .level = 2, .jobs = 1});
    EXPECT_EQ(write(tar.bytes(), {.format = format, .level = 2, .jobs = 5}).layer.digest, first.layer.digest);
    EXPECT_EQ(write(tar.bytes(), {.format = format, .level = 2, .jobs = 2}, 777).layer.digest, first.layer.digest);
    EXPECT_NE(write(tar.bytes(), {.format = format, .level = 5, .jobs = 2}).layer.digest, first.layer.digest);
  }
}

TEST(LayerWriterTest, GzipUnpacksToTheTar) {
  const auto tar = rich_tar().end();
  const auto written = write(tar.bytes(), {.format = WrittenFormat::kGzip, .level = 6, .jobs = 2});
  EXPECT_EQ(codec::test::gunzip(written.blob), to_bytes(tar.bytes()));
  EXPECT_EQ(written.layer.media_type, "application/vnd.oci.image.layer.v1.tar+gzip");
  EXPECT_TRUE(written.layer.annotations.empty());
}

TEST(LayerWriterTest, WritesWhatNoTableCanTellWithoutOne) {
  const auto expect_none = [](TarBuilder& tar, std::string_view reason) {
    tar.end();
    const auto written = write(tar.bytes());
    EXPECT_EQ(written.layer.without_table, reason);
    EXPECT_TRUE(written.layer.annotations.empty());
    EXPECT_EQ(codec::decompress_zstd(written.blob, tar.bytes().size(), "blob"), to_bytes(tar.bytes()));
  };
  TarBuilder twice;
  expect_none(twice.file("a", "one").file("./a", "two"), "two entries of one name");
  TarBuilder latin;
  expect_none(latin.file("first", "x").file("caf\xE9", "two"), "a name that is not UTF-8");
  TarBuilder old;
  expect_none(old.pax({{"mtime", "-1.5"}}).file("a", "one"), "a time before 1970 or after 9999");
  TarBuilder gnu;
  expect_none(gnu.header({.name = "a", .magic = "ustar  ", .patches = {{345, "00000000001"}}}), "times in GNU's form");
  TarBuilder sparse;
  sparse.pax({{"GNU.sparse.major", "1"},
              {"GNU.sparse.minor", "0"},
              {"GNU.sparse.name", "s"},
              {"GNU.sparse.realsize", "100000"}});
  std::string data = "1\n512\n4\n";
  data.resize(512);
  expect_none(sparse.header({.name = "s", .size = 516}).data(data + "abcd").file("b", "more"), "a sparse file");
  TarBuilder none;
  expect_none(none, "no entries");
}

TEST(LayerWriterTest, ManyEntriesWithoutContentAndBytesBehindTheEnd) {
  TarBuilder tar;
  for (int i = 0; i < 5000; ++i) tar.header({.name = "d/" + std::to_string(i), .typeflag = '5'});
  tar.file("f", "content").end().raw(Bytes(40'000));
  const auto written = write(tar.bytes());
  EXPECT_EQ(assembled(written, contents_of(written)), to_bytes(tar.bytes()));
}

TEST(LayerWriterTest, RefusesWhatIsNoTar) {
  EXPECT_THROW(write(noise(5000, 1)), CorruptData);
  const auto tar = rich_tar();
  EXPECT_THROW(write(tar.bytes().first(tar.bytes().size() - 200'000)), CorruptData);
  LayerWriter stopped("layer", {}, [](ByteView) { throw TemporaryError("disk full"); });
  EXPECT_THROW(
      {
        stopped.feed(rich_tar().end().bytes());
        stopped.finish();
      },
      TemporaryError);
}

}  // namespace
}  // namespace varve::indexer
