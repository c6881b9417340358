#include "indexer/packs/pack_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/errors.h"
#include "core/index/span_reader.h"
#include "indexer/packs/carry_packs.h"
#include "indexer/packs/group_starts.h"
#include "indexer/packs/made_packs.h"
#include "testing/artifact_repository.h"
#include "testing/temp_dir.h"

namespace varve::indexer {
namespace {

using index::StartGroup;
using index::StartPack;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string letters(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < bytes) text += char('a' + random() % 8);
  return text;
}

// Of Python compiled from a source of that time.
std::string bytecode(std::string_view time, std::size_t bytes, unsigned seed) {
  return std::string("\xa7\r\r\n\0\0\0\0", 8) + std::string(time) + "size" + letters(bytes, seed);
}

class PackWriterTest : public testing::Test {
 protected:
  static test::MadeFiles version(std::string_view time, bool relayered) {
    test::MadeFiles files({relayered ? "new base" : "base", relayered ? "new upper" : "upper"});
    if (relayered) files.add("new", letters(5000, 99), 0);
    files.add("lib/a.so", letters(700'000, 1), relayered ? 1 : 0);
    files.add("lib/__pycache__/m.cpython-311.pyc", bytecode(time, 3000, 2), relayered ? 0 : 1);
    files.add("lib/b.so", letters(90'001, 3), 1);
    return files;
  }
  static std::vector<PackRange> reads(const test::MadeFiles& files) {
    std::vector<PackRange> ranges{part_of(files, "lib/b.so"), part_of(files, "lib/a.so", 4096, 600'000),
                                  part_of(files, "lib/__pycache__/m.cpython-311.pyc")};
    ranges.front().stream_range.length += 111;  // with its padding
    return ranges;
  }
  static PackContent content(const test::MadeFiles& files) {
    PackContent content{.ranges = reads(files), .literals = {}};
    content.literals = take_out_times(content.ranges, FilePlaces(files.tree, first_places(files.layers)));
    return content;
  }
  StartPack written(const test::MadeFiles& files, unsigned jobs = 2) {
    writer_ = std::make_unique<PackWriter>(streams_of(files), dir_.path(), jobs);
    return writer_->write({content(files)}, work_.work()).front();
  }
  std::vector<StartGroup> carried(const std::vector<StartGroup>& groups, const test::MadeFiles& from,
                                  const test::MadeFiles& to) {
    PackWriter writer(streams_of(to), dir_.path(), 1);
    return carry_groups(groups, FilePlaces(from.tree, first_places(from.layers)),
                        FilePlaces(to.tree, first_places(to.layers)), writer, work_.work());
  }

  test::TempDir dir_;
  TestWork work_;
  std::unique_ptr<PackWriter> writer_;
};

TEST_F(PackWriterTest, FramesDecodeToTheBytesOfTheLayersInTheOrderOfTheRanges) {
  const auto files = version("time", false);
  const auto pack = written(files);
  test::ArtifactRepository repository;
  writer_->put(pack, repository);
  oci::Descriptor blob;
  blob.digest = pack.blob;
  blob.size = pack.compressed_bytes();
  const auto bytes = oci::read_whole_blob(repository, blob, 1 << 30);
  const auto map = pack.map();
  codec::SpanDecoder decoder;
  Bytes stream;
  for (std::size_t i = 0; i < map.spans.size(); ++i) {
    const auto& [offset, length] = map.spans[i].compressed_range;
    Bytes decoded(map.spans[i].stream_range.length);
    index::decode_span(map, i, {.compressed = ByteView(bytes).subspan(offset, length)}, decoded, decoder);
    append(stream, decoded);
  }
  Bytes expected;
  for (const auto& [layer, range] : pack.ranges) append(expected, files.bytes(layer, range));
  EXPECT_EQ(stream, expected);
  EXPECT_EQ(pack.stream_digest, digest_of(expected));
  EXPECT_EQ(stream.size(), 600'000 + 90'112 + 3016 - 8);
  EXPECT_EQ(pack.frames.size(), 3U);
}

TEST_F(PackWriterTest, TimesOfSourcesComeBesideThePack) {
  const auto files = version("1234", false);
  const auto pack = written(files);
  ASSERT_THAT(pack.literals, SizeIs(1));
  EXPECT_EQ(as_text(pack.literals[0].bytes), "1234size");
  EXPECT_EQ(pack.literals[0].stream_offset, files.place("lib/__pycache__/m.cpython-311.pyc", 8).offset);
}

TEST_F(PackWriterTest, TheSameReadsMakeTheSameBlobWhateverTheThreads) {
  const auto files = version("time", false);
  EXPECT_EQ(written(files, 1), written(files, 4));
}

TEST_F(PackWriterTest, WithinAFrameRangesGoByPlaceAndNeighboursAreOne) {
  test::MadeFiles files({"base"});
  files.add("a", letters(400'000, 1));
  const auto place = files.place("a");
  const auto at = [&](std::uint64_t offset, std::uint64_t length) {
    return PackRange{0, {.offset = place.offset + offset, .length = length}};
  };
  PackWriter writer(streams_of(files), dir_.path(), 1);
  const auto pack =
      writer
          .write({{.ranges = {at(300'000, 10'000), at(20'000, 8), at(0, 20'000), at(100'000, 262'144 - 30'008 + 5)},
                   .literals = {}}},
                 work_.work())
          .front();
  EXPECT_THAT(pack.ranges, ElementsAre(at(0, 20'008), at(100'000, 262'144 - 30'008), at(300'000, 10'000),
                                       at(100'000 + 262'144 - 30'008, 5)));
}

TEST_F(PackWriterTest, ListedPacksAreThoseOfThePlaces) {
  const auto files = version("time", false);
  const auto pack = written(files);
  const std::vector<StartGroup> groups{
      {.kind = StartGroup::Kind::kImport, .name = "m", .trigger = part_of(files, "lib/b.so"), .pack = pack},
      {.kind = StartGroup::Kind::kProgram, .name = "x", .trigger = part_of(files, "lib/a.so"), .pack = pack}};
  const auto list = list_packs(groups, files.layers);
  EXPECT_EQ(index::StartPacks::decode(list.encode(), "list"), list);
  auto again = groups_by_place(list, files.layers);
  std::ranges::reverse(again);
  EXPECT_EQ(again, groups);
  EXPECT_THROW(groups_by_place(list, {files.layers[0]}), CorruptData);
}

class CarryPacksTest : public PackWriterTest {
 protected:
  std::vector<StartGroup> groups(const test::MadeFiles& files) {
    return {{.kind = StartGroup::Kind::kImport,
             .name = "m",
             .trigger = part_of(files, "lib/b.so"),
             .pack = written(files)}};
  }
};

TEST_F(CarryPacksTest, ARebuiltImageHasTheSamePack) {
  const auto before = version("1111", false), after = version("2222", true);
  const auto old = groups(before);
  const auto found = carried(old, before, after);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].pack.blob, old[0].pack.blob);
  EXPECT_EQ(as_text(found[0].pack.literals.at(0).bytes), "2222size");
  EXPECT_EQ(found[0].trigger, part_of(after, "lib/b.so"));
  EXPECT_NE(found[0].pack.ranges, old[0].pack.ranges);
  // What it says is what the layers have.
  Bytes stream;
  for (const auto& [layer, range] : found[0].pack.ranges) append(stream, after.bytes(layer, range));
  EXPECT_EQ(digest_of(stream), old[0].pack.stream_digest);
  EXPECT_NO_THROW(list_packs(found, after.layers).encode());
}

TEST_F(CarryPacksTest, AChangedFileDoesNotFit) {
  const auto before = version("1111", false);
  for (const auto* path : {"lib/a.so", "lib/b.so", "lib/__pycache__/m.cpython-311.pyc"}) {
    auto after = version("2222", true);
    auto& file = after.tree.entries.at(path);
    auto& changed = after.streams[file.layer][file.runs[0].run.stream_offset + 5000 % file.size];
    changed = std::byte(std::to_integer<int>(changed) ^ 1);
    file.content_digest = digest_of(after.bytes(file.layer, after.place(path)));
    EXPECT_THAT(carried(groups(before), before, after), IsEmpty()) << path;
  }
}

TEST_F(CarryPacksTest, ADigestThatLiesIsFoundOut) {
  const auto before = version("1111", false);
  auto after = version("2222", true);
  const auto place = after.place("lib/a.so", 5000, 1);
  after.streams[after.layer_of("lib/a.so")][place.offset] = std::byte(0);
  EXPECT_THAT(carried(groups(before), before, after), IsEmpty());
}

TEST_F(CarryPacksTest, PaddingThatIsNoZerosIsFoundOut) {
  const auto before = version("1111", false);
  auto after = version("2222", true);
  const auto place = after.place("lib/b.so");
  after.streams[after.layer_of("lib/b.so")][place.end()] = std::byte('!');
  EXPECT_THAT(carried(groups(before), before, after), IsEmpty());
}

TEST_F(CarryPacksTest, AFileThatIsGoneOrShorterDoesNotFit) {
  const auto before = version("1111", false);
  auto after = version("2222", true);
  after.tree.entries.erase("lib/a.so");
  EXPECT_THAT(carried(groups(before), before, after), IsEmpty());
  after.add("lib/a.so", "short", 0);
  EXPECT_THAT(carried(groups(before), before, after), IsEmpty());
}

TEST_F(CarryPacksTest, FilesThatBecameOneAreNotTwice) {
  test::MadeFiles before({"base"}), after({"new"});
  const auto content = letters(50'000, 1);
  before.add("a", content).add("b", content);
  after.add("a", content);
  after.tree.entries["b"] = after.tree.entries["a"];
  after.tree.entries["b"].link_of = "a";
  PackWriter writer(streams_of(before), dir_.path(), 1);
  const auto pack =
      writer.write({{.ranges = {part_of(before, "a"), part_of(before, "b")}, .literals = {}}}, work_.work()).front();
  EXPECT_THAT(carried({{.kind = StartGroup::Kind::kImport, .name = "m", .trigger = part_of(before, "a"), .pack = pack}},
                      before, after),
              IsEmpty());
}

}  // namespace
}  // namespace varve::indexer
