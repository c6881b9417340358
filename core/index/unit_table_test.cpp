#include "core/index/unit_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/refusal.h"
#include "testing/temp_dir.h"

namespace varve::index {
namespace {

using test::refusal_of;
using ::testing::HasSubstr;

constexpr std::uint64_t kStreamBytes = 8 << 20;

LayerEntry file(const std::string& path, std::uint64_t at, std::uint64_t size, std::int64_t mtime = 1'000) {
  LayerEntry entry;
  entry.type = FileType::kRegular;
  entry.path = path;
  entry.mtime_seconds = mtime;
  entry.size = size;
  entry.runs = {{.file_offset = 0, .stream_offset = at, .length = size}};
  entry.content_digest = digest_of(path + std::to_string(size));
  for (std::uint64_t chunk = 0; size > kChunkBytes && chunk * kChunkBytes < size; ++chunk)
    entry.chunk_digests.push_back(digest_of(path + " chunk " + std::to_string(chunk)));
  return entry;
}

LayerEntries layer_of(std::vector<LayerEntry> entries) {
  return {.layer_digest = digest_of("layer"), .entries = std::move(entries)};
}

const Digest kEntries = digest_of("entries");

TEST(UnitTables, KnowFilesAndPiecesOfLargeOnesByPlaceAndDigest) {
  const auto large = file("large", 4'096, (2 << 20) + 5);
  const auto bytes = UnitTable::make(layer_of({file("small", 512, 100), large}), kEntries, kStreamBytes);
  const auto table = UnitTable::decode(bytes, "table");
  ASSERT_EQ(table.size(), 4u);
  EXPECT_EQ(table.layer_digest(), digest_of("layer"));
  EXPECT_EQ(table.entries_digest(), kEntries);
  EXPECT_EQ(table.range(0), (ByteRange{512, 100}));
  EXPECT_EQ(table.padded_range(0), (ByteRange{512, 512}));
  EXPECT_EQ(table.range(3), (ByteRange{4'096 + (2 << 20), 5}));
  for (std::size_t unit = 0; unit < table.size(); ++unit) EXPECT_EQ(table.find(table.digest(unit)), unit);
  EXPECT_EQ(table.digest(2), large.chunk_digests[1]);
  EXPECT_EQ(table.find(large.content_digest), std::nullopt) << "it is in pieces";
  using Contents = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(table.contents_of({0, 512}), (Contents{0, 0}));
  EXPECT_EQ(table.contents_of({700, 10}), (Contents{0, 1})) << "the zeros behind it are its own";
  EXPECT_EQ(table.contents_of({1'024, 3'073}), (Contents{1, 2}));
  EXPECT_EQ(table.contents_of({0, kStreamBytes}), (Contents{0, 4}));
}

TEST(UnitTables, ContentsOfSparseFilesAreKnownAndNoUnits) {
  auto sparse = file("sparse", 512, 5'000);
  sparse.runs = {{.file_offset = 100, .stream_offset = 512, .length = 50},
                 {.file_offset = 4'000, .stream_offset = 562, .length = 20}};
  const auto bytes = UnitTable::make(layer_of({sparse, file("next", 1'024, 9)}), kEntries, kStreamBytes);
  const auto table = UnitTable::decode(bytes, "table");
  ASSERT_EQ(table.size(), 3u);
  EXPECT_FALSE(table.is_unit(0));
  EXPECT_FALSE(table.is_unit(1));
  EXPECT_TRUE(table.is_unit(2));
  EXPECT_EQ(table.find(sparse.content_digest), std::nullopt);
}

TEST(UnitTables, BytecodeKnowsItsPathAndItsSource) {
  const auto pyc = [](const std::string& name, std::uint64_t at) {
    return file("lib/__pycache__/" + name + ".cpython-311.pyc", at, 40);
  };
  const auto bytes =
      UnitTable::make(layer_of({file("lib/a.py", 512, 77, (1ll << 32) + 5), pyc("a", 1'024), pyc("lost", 2'048)}),
                      kEntries, kStreamBytes);
  const auto table = UnitTable::decode(bytes, "table");
  EXPECT_FALSE(table.bytecode(0));
  const auto known = table.bytecode(1);
  ASSERT_TRUE(known && known->has_source);
  EXPECT_EQ(known->source_seconds, 5u) << "modulo 2^32";
  EXPECT_EQ(known->source_bytes, 77u);
  EXPECT_THAT(table.find_bytecode(known->path, 40), ::testing::ElementsAre(1u));
  EXPECT_THAT(table.find_bytecode(known->path, 41), ::testing::IsEmpty());
  EXPECT_FALSE(table.bytecode(2)->has_source);
}

TEST(UnitTables, RefuseEntriesThatNoTarHas) {
  const auto of = [](std::vector<LayerEntry> entries, std::uint64_t stream_bytes = kStreamBytes) {
    return refusal_of<CorruptData>([&] { UnitTable::make(layer_of(std::move(entries)), kEntries, stream_bytes); });
  };
  EXPECT_EQ(of({file("a", 512, 512), file("b", 1'024, 1)}), "");
  EXPECT_THAT(of({file("a", 512, 513), file("b", 1'024, 1)}), HasSubstr("1024 is out of place"));
  EXPECT_THAT(of({file("a", 512, 10), file("b", 512, 10)}), HasSubstr(kEntries.to_string()));
  EXPECT_THAT(of({file("a", 513, 10)}), HasSubstr("513"));
  EXPECT_THAT(of({file("a", 512, 10)}, 520), HasSubstr("512"));
}

TEST(UnitTables, AreReadAsTheyWereWrittenOrNotAtAll) {
  const auto bytes = UnitTable::make(
      layer_of({file("lib/a.py", 512, 77), file("lib/__pycache__/a.cpython-311.pyc", 1'024, 40), file("c", 2'048, 3)}),
      kEntries, kStreamBytes);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto flipped = bytes;
    flipped[at] ^= std::byte(4);
    EXPECT_THROW(UnitTable::decode(flipped, "table"), CorruptData) << at;
    EXPECT_THROW(UnitTable::decode(ByteView(bytes).first(at), "table"), CorruptData) << at;
  }
  const test::TempDir dir;
  EXPECT_EQ(UnitTable::open(dir / "units"), nullptr);
  write_file_atomically(dir / "units", bytes);
  EXPECT_EQ(UnitTable::open(dir / "units")->cut(), UnitTable::decode(bytes, "table").cut());
}

// A digest that matches is no reason to believe what is inside.
TEST(UnitTables, AreCheckedThroughoutThoughTheirDigestMatches) {
  const auto good = UnitTable::make(
      layer_of({file("lib/a.py", 512, 77), file("lib/__pycache__/a.cpython-311.pyc", 1'024, 40), file("c", 2'048, 3)}),
      kEntries, kStreamBytes);
  constexpr std::size_t kHeader = 104, kRow = 48;
  const auto with = [&](std::size_t at, std::uint64_t value, std::size_t width) {
    auto bytes = good;
    for (std::size_t i = 0; i < width; ++i) bytes[at + i] = std::byte(value >> (8 * i));
    const auto body = ByteView(bytes).first(bytes.size() - Digest::kBytes);
    const auto digest = digest_of(body);
    std::ranges::copy(digest.raw(), bytes.end() - Digest::kBytes);
    return refusal_of<CorruptData>([&] { UnitTable::decode(bytes, "table"); });
  };
  EXPECT_EQ(with(kHeader, 512, 8), "");
  EXPECT_THAT(with(kHeader, 1'024, 8), HasSubstr("out of place"));  // offset
  EXPECT_THAT(with(kHeader, 513, 8), HasSubstr("out of place"));    // no block
  EXPECT_THAT(with(kHeader + 8, 0, 4), HasSubstr("out of place"));  // length
  EXPECT_THAT(with(kHeader + 2 * kRow, kStreamBytes, 8), HasSubstr("out of place"));
  EXPECT_THAT(with(kHeader + 12, 0, 4), HasSubstr("wrong numbers"));   // kind
  EXPECT_THAT(with(kHeader + 12, 2, 4), HasSubstr("wrong bytecode"));  // another's
  EXPECT_THAT(with(kHeader + 12, 9, 4), HasSubstr("wrong bytecode"));  // of nobody
  EXPECT_THAT(with(kHeader + 3 * kRow + 8, 7, 4), HasSubstr("wrong order of digests"));
  EXPECT_THAT(with(72, kStreamBytes << 40, 8), HasSubstr("too large"));
  EXPECT_THAT(with(80, 1ull << 40, 8), HasSubstr("too large"));
  EXPECT_THAT(with(80, 2, 8), HasSubstr("too large"));  // fewer contents than units
}

}  // namespace
}  // namespace varve::index
