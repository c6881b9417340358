#include "core/index/format/layer_entries.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"

namespace varve::index {
namespace {

LayerEntry entry_of(FileType type, std::string path) {
  LayerEntry entry;
  entry.type = type;
  entry.path = std::move(path);
  entry.mode = 0755;
  return entry;
}

LayerEntry file_of(std::string path, std::uint64_t at, std::uint64_t size) {
  auto entry = entry_of(FileType::kRegular, std::move(path));
  entry.size = size;
  if (size != 0) entry.runs = {{0, at, size}};
  if (size != 0) entry.content_digest = digest_of(entry.path);
  return entry;
}

LayerEntries everything() {
  LayerEntries layer{.layer_digest = digest_of("layer"), .entries = {}};
  auto& entries = layer.entries;
  entries.push_back(entry_of(FileType::kDirectory, ""));
  entries.push_back(entry_of(FileType::kDirectory, "usr"));
  entries.push_back(file_of("usr/file", 1024, 700));
  entries.push_back(file_of("usr/empty", 0, 0));
  entries.push_back(file_of("usr/.wh.gone", 0, 0));
  entries.push_back(file_of("usr/file", 4096, 10));  // twice in one layer
  entries.push_back(file_of("before", 512, 1));      // not in the order of offsets
  entries.push_back(entry_of(FileType::kSymlink, "usr/link"));
  entries.back().link_target = "../somewhere//else";
  entries.push_back(entry_of(FileType::kHardLink, "usr/hard"));
  entries.back().link_target = "usr/file";
  entries.push_back(entry_of(FileType::kCharDevice, "dev/null"));
  entries.back().device_major = 1;
  entries.back().device_minor = 3;
  entries.push_back(entry_of(FileType::kBlockDevice, "dev/large"));
  entries.back().device_minor = 0xffffffff;
  entries.push_back(entry_of(FileType::kFifo, "dev/fifo"));
  entries.push_back(file_of("large", 8192, 3 * kChunkBytes + 5));
  entries.back().chunk_digests = {digest_of("1"), digest_of("2"), digest_of("3"), digest_of("4")};
  entries.push_back(file_of("large-without", 8 << 20, 2 * kChunkBytes));
  entries.push_back(file_of("sparse", 0, 1ull << 40));
  entries.back().runs = {{5, 9000, 10}, {100, 9010, 1}, {(1ull << 40) - 1, 9012, 1}};
  entries.push_back(file_of("hole", 0, 77));
  entries.back().runs.clear();
  entries.push_back(file_of("odd\xff\x01name", 100'000, 5));
  entries.back().mtime_seconds = -1;
  entries.back().mtime_nanoseconds = 999'999'999;
  entries.back().uid = 0xffffffff;
  entries.back().gid = 70'000;
  entries.back().mode = 07777;
  entries.back().xattrs = {
      {"security.capability", std::string("\0\1\2", 3)}, {"user.empty", ""}, {"user.long", std::string(65'536, 'x')}};
  entries.push_back(file_of("time", 200'000, 5));
  entries.back().mtime_seconds = INT64_MIN;
  entries.push_back(file_of("time2", 300'000, 5));
  entries.back().mtime_seconds = INT64_MAX;
  entries.push_back(file_of(std::string(255, 'n'), 400'000, 5));
  return layer;
}

ElfFacts some_facts() {
  ElfFacts facts;
  facts.type = 3;
  facts.machine = 62;
  facts.interpreter = "/lib64/ld-linux-x86-64.so.2";
  facts.soname = "libme.so.1";
  facts.runpath = "$ORIGIN/../lib";
  facts.needed = {"libm.so.6", "libc.so.6", "", "libm.so.6"};
  facts.device_code = true;
  return facts;
}

LayerEntries everything_and_elf() {
  auto layer = everything();
  layer.has_elf_facts = true;
  ElfFacts odd;
  odd.type = 0xFFFF;
  odd.machine = 0xFFFF;
  odd.is_64 = false;
  odd.rpath = std::string(10'000, 'r');
  odd.broken = "a dynamic section without string table";
  std::size_t number = 0;
  for (auto& entry : layer.entries) {
    if (entry.type != FileType::kRegular || entry.size == 0) continue;
    if (number % 3 == 0) entry.elf = std::make_shared<ElfFacts>(some_facts());
    if (number % 3 == 1) entry.elf = std::make_shared<ElfFacts>(odd);
    ++number;
  }
  return layer;
}

TEST(LayerEntriesTest, ComeBackAsTheyWereWritten) {
  for (const auto& layer : {everything(), everything_and_elf()}) {
    const auto bytes = layer.encode();
    EXPECT_EQ(LayerEntries::has_elf_facts_in(bytes), layer.has_elf_facts);
    const auto back = LayerEntries::decode(bytes, "test");
    EXPECT_EQ(back.layer_digest, layer.layer_digest);
    EXPECT_EQ(back.has_elf_facts, layer.has_elf_facts);
    ASSERT_EQ(back.entries.size(), layer.entries.size());
    for (std::size_t i = 0; i < layer.entries.size(); ++i)
      EXPECT_EQ(back.entries[i], layer.entries[i]) << layer.entries[i].path;
    EXPECT_EQ(back.encode(), bytes);
  }
  const LayerEntries empty{.layer_digest = digest_of("empty"), .entries = {}};
  EXPECT_TRUE(LayerEntries::decode(empty.encode(), "test").entries.empty());
}

// Indexes made by version 0.1 stay readable.
TEST(LayerEntriesTest, WithoutElfFactsAreWrittenAsBeforeThereWereAny) {
  auto layer = everything_and_elf();
  layer.has_elf_facts = false;
  const auto bytes = layer.encode();
  EXPECT_EQ(as_text(bytes).substr(0, 8), "VRVENT1\n");
  EXPECT_EQ(bytes, everything().encode());
  const auto back = LayerEntries::decode(bytes, "test");
  EXPECT_FALSE(back.has_elf_facts);
  EXPECT_EQ(back.entries, everything().entries);
}

TEST(LayerEntriesTest, AreEqualIfTheirFactsAre) {
  const auto with = [](void (*change)(ElfFacts&)) {
    auto entry = file_of("x", 512, 5);
    auto facts = some_facts();
    change(facts);
    entry.elf = std::make_shared<ElfFacts>(facts);
    return entry;
  };
  const auto same = [](ElfFacts&) {};
  EXPECT_EQ(with(same), with(same));
  EXPECT_NE(with(same), with([](ElfFacts& facts) { facts.needed.pop_back(); }));
  EXPECT_NE(with(same), with([](ElfFacts& facts) { facts.device_code = false; }));
  EXPECT_NE(with(same), file_of("x", 512, 5));
  EXPECT_NE(file_of("x", 512, 5), file_of("x", 512, 6));
}

// A layer of a few bytes must not unpack to names without end.
TEST(LayerEntriesTest, HoldABoundedNumberOfNames) {
  LayerEntries layer{.layer_digest = digest_of("layer"), .entries = {}, .has_elf_facts = true};
  auto facts = some_facts();
  facts.rpath = std::string(kMaxElfTextBytes - 1000, 'r');
  const auto shared = std::make_shared<ElfFacts>(facts);
  for (std::uint64_t i = 0; i < kMaxLayerElfTextBytes / (kMaxElfTextBytes - 1000) + 1; ++i) {
    layer.entries.push_back(file_of("f" + std::to_string(i), 512 + i * 1024, 5));
    layer.entries.back().elf = shared;
  }
  EXPECT_THROW(layer.encode(), Unsupported);
}

TEST(LayerEntriesTest, RefuseEveryPrefixOfThemselves) {
  const auto bytes = everything_and_elf().encode();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(LayerEntries::decode(ByteView(bytes).first(length), "test"), CorruptData) << length;
  auto longer = bytes;
  longer.resize(longer.size() + 32);
  EXPECT_THROW(LayerEntries::decode(longer, "test"), CorruptData);
}

TEST(LayerEntriesTest, SurviveEveryFlippedBit) {
  const auto bytes = everything_and_elf().encode();
  for (std::size_t at = 0; at < bytes.size() * 8; ++at) {
    auto broken = bytes;
    broken[at / 8] ^= std::byte(1 << at % 8);
    try {
      const auto back = LayerEntries::decode(broken, "test");
      EXPECT_NO_THROW(back.encode()) << at;  // whatever is accepted is valid
    } catch (const Error&) {
    }
  }
}

struct EntriesBreakage {
  const char* name;
  void (*apply)(LayerEntry&);  // to a file of 3 MiB and 5 bytes
};

class LayerEntriesBreakageTest : public testing::TestWithParam<EntriesBreakage> {};

TEST_P(LayerEntriesBreakageTest, IsRefused) {
  LayerEntries layer;
  layer.entries.push_back(file_of("some/path", 1024, 3 * kChunkBytes + 5));
  GetParam().apply(layer.entries.back());
  try {
    layer.encode();
    FAIL() << "encoded";
  } catch (const CorruptData&) {
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LayerEntriesBreakageTest,
    testing::Values(
        EntriesBreakage{"AbsolutePath", [](LayerEntry& entry) { entry.path = "/usr"; }},
        EntriesBreakage{"TrailingSlash", [](LayerEntry& entry) { entry.path = "usr/"; }},
        EntriesBreakage{"DotDot", [](LayerEntry& entry) { entry.path = "usr/../x"; }},
        EntriesBreakage{"Dot", [](LayerEntry& entry) { entry.path = "./x"; }},
        EntriesBreakage{"DoubleSlash", [](LayerEntry& entry) { entry.path = "a//b"; }},
        EntriesBreakage{"LongName", [](LayerEntry& entry) { entry.path = std::string(256, 'a'); }},
        EntriesBreakage{"NulInPath", [](LayerEntry& entry) { entry.path = std::string("a\0b", 3); }},
        EntriesBreakage{"Mode", [](LayerEntry& entry) { entry.mode = 010000; }},
        EntriesBreakage{"Nanoseconds", [](LayerEntry& entry) { entry.mtime_nanoseconds = 1'000'000'000; }},
        EntriesBreakage{"TargetWithoutLink", [](LayerEntry& entry) { entry.link_target = "x"; }},
        EntriesBreakage{"DeviceNumberWithoutDevice", [](LayerEntry& entry) { entry.device_major = 1; }},
        EntriesBreakage{"HardLinkOutside",
                        [](LayerEntry& entry) {
                          entry = entry_of(FileType::kHardLink, "x");
                          entry.link_target = "../etc/shadow";
                        }},
        EntriesBreakage{"EmptySymlink", [](LayerEntry& entry) { entry = entry_of(FileType::kSymlink, "x"); }},
        EntriesBreakage{"SizeOfADirectory",
                        [](LayerEntry& entry) {
                          entry = entry_of(FileType::kDirectory, "x");
                          entry.size = 1;
                        }},
        EntriesBreakage{"RunOutsideTheFile", [](LayerEntry& entry) { entry.runs[0].length += 1; }},
        EntriesBreakage{"RunOutsideAnyLayer", [](LayerEntry& entry) { entry.runs[0].stream_offset = 1ull << 44; }},
        EntriesBreakage{"OverlappingRuns",
                        [](LayerEntry& entry) {
                          entry.runs = {{0, 1024, 100}, {99, 2048, 100}};
                        }},
        EntriesBreakage{"EmptyRun",
                        [](LayerEntry& entry) {
                          entry.runs.push_back({entry.size, 0, 0});
                        }},
        EntriesBreakage{"TooFewChunks", [](LayerEntry& entry) { entry.chunk_digests.resize(3); }},
        EntriesBreakage{"ChunksOfASparseFile",
                        [](LayerEntry& entry) {
                          entry.runs = {{1, 1024, 100}};
                          entry.chunk_digests.resize(4);
                        }},
        EntriesBreakage{"FactsOfAnEmptyFile",
                        [](LayerEntry& entry) {
                          entry = file_of("empty", 0, 0);
                          entry.elf = std::make_shared<ElfFacts>(some_facts());
                        }},
        EntriesBreakage{"FactsThatAreTooLong",
                        [](LayerEntry& entry) {
                          auto facts = some_facts();
                          facts.rpath = std::string(2 * kMaxElfTextBytes, 'r');
                          entry.elf = std::make_shared<ElfFacts>(facts);
                        }},
        EntriesBreakage{"AttributeName", [](LayerEntry& entry) { entry.xattrs[""] = "x"; }},
        EntriesBreakage{"AttributeValue",
                        [](LayerEntry& entry) { entry.xattrs["user.x"] = std::string(65'537, 'x'); }}),
    [](const auto& info) { return info.param.name; });

TEST(LayerEntriesTest, RefuseMoreEntriesThanTheLimit) {
  auto bytes = everything().encode();
  store_le(bytes.data() + 40, std::uint64_t(kMaxLayerEntries + 1));
  EXPECT_THROW(LayerEntries::decode(bytes, "test"), Unsupported);
  store_le(bytes.data() + 40, std::uint64_t(kMaxLayerEntries));
  EXPECT_THROW(LayerEntries::decode(bytes, "test"), CorruptData);
  bytes = everything().encode();
  store_le(bytes.data() + 48, std::uint64_t(kMaxLayerEntriesBytes + 1));
  EXPECT_THROW(LayerEntries::decode(bytes, "test"), Unsupported);
}

TEST(NormalisePathTest, GivesPathsInTheRoot) {
  EXPECT_EQ(normalise_path("./usr//lib/./x/", "test"), "usr/lib/x");
  EXPECT_EQ(normalise_path("/usr", "test"), "usr");
  EXPECT_EQ(normalise_path("//", "test"), "");
  EXPECT_EQ(normalise_path(".", "test"), "");
  EXPECT_EQ(normalise_path("./", "test"), "");
  EXPECT_EQ(normalise_path("a/...", "test"), "a/...");
  EXPECT_EQ(normalise_path("a/.wh..wh..opq", "test"), "a/.wh..wh..opq");
  EXPECT_EQ(normalise_path("\xff\xfe", "test"), "\xff\xfe");
  std::string deep;
  for (int i = 0; i < 2047; ++i) deep += "d/";
  EXPECT_EQ(normalise_path(deep + "ab", "test").size(), 4096u);
  EXPECT_EQ(normalise_path(std::string(10'000, '/') + "x", "test"), "x");
}

TEST(NormalisePathTest, RefusesWhatLeavesTheRootOrCannotBeAName) {
  std::string deep;
  for (int i = 0; i < 2048; ++i) deep += "d/";
  for (const auto& path : {std::string("../x"), std::string("a/../../b"), std::string("a/.."), std::string(".."),
                           std::string("a\0b", 3), std::string("\0", 1), std::string(256, 'x'), deep + "x"})
    EXPECT_THROW(normalise_path(path, "test"), CorruptData) << path.substr(0, 20);
}

}  // namespace
}  // namespace varve::index
