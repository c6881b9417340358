#include "core/codec/archive_reader.h"

#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/codec_support.h"
#include "testing/temp_dir.h"

namespace varve::codec {
namespace {

using codec::test::have_tool;
using codec::test::run_tool;

std::string text_of(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string content_of(ArchiveReader& reader) {
  std::string content;
  reader.read([&](ByteView block) {
    content += text_of(block);
    return true;
  });
  return content;
}

// A folder with two files, a link and a large file of repeating text, packed by bsdtar.
class ArchiveReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_tool("bsdtar")) GTEST_SKIP() << "bsdtar is not installed";
    std::filesystem::create_directories(folder_ / "in/deep");
    std::ofstream(folder_ / "in/a.txt") << "alpha";
    std::ofstream(folder_ / "in/deep/b.txt") << large_;
    std::filesystem::create_symlink("a.txt", folder_ / "in/link");
  }

  std::filesystem::path pack(const std::string& name, const std::string& options) {
    const auto path = folder_ / name;
    run_tool("cd '" + (folder_ / "in").string() + "' && bsdtar " + options + " -f '" + path.string() +
                 "' -c a.txt deep link",
             {});
    return path;
  }

  varve::test::TempDir folder_;
  const std::string large_ = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "line " + std::to_string(i) + "\n";
    return text;
  }();
};

TEST_F(ArchiveReaderTest, ReadsEveryKindThatPeoplePack) {
  const std::pair<const char*, const char*> kKinds[] = {{"a.tar", "--format pax"},
                                                        {"a.tar.gz", "-z"},
                                                        {"a.tar.xz", "-J"},
                                                        {"a.tar.bz2", "-j"},
                                                        {"a.tar.zst", "--zstd"},
                                                        {"a.zip", "--format zip"},
                                                        {"b.zip", "--format zip --options compression=store"},
                                                        {"b.tar", "--format gnutar"}};
  for (const auto& [name, options] : kKinds) {
    SCOPED_TRACE(name);
    auto reader = ArchiveReader::open(pack(name, options));
    ArchiveEntry entry;
    std::map<std::string, std::string> files;
    while (reader.next(entry))
      if (entry.regular) files[entry.name] = content_of(reader);
    EXPECT_EQ(files, (std::map<std::string, std::string>{{"a.txt", "alpha"}, {"deep/b.txt", large_}}));
  }
}

TEST_F(ArchiveReaderTest, PassesOverWhatIsNotRead) {
  for (const auto* options : {"-z", "--format zip", "--format pax"}) {
    SCOPED_TRACE(options);
    auto reader = ArchiveReader::open(pack("skipped", options));
    ArchiveEntry entry;
    std::size_t entries = 0;
    while (reader.next(entry)) ++entries;
    EXPECT_EQ(entries, 4u);
  }
}

TEST_F(ArchiveReaderTest, StopsReadingWhenTheTakerHasEnough) {
  auto reader = ArchiveReader::open(pack("a.tar.gz", "-z"));
  ArchiveEntry entry;
  while (reader.next(entry) && entry.name != "deep/b.txt") {
  }
  std::size_t calls = 0;
  reader.read([&](ByteView) { return ++calls < 2; });
  EXPECT_EQ(calls, 2u);
  ASSERT_TRUE(reader.next(entry));
  EXPECT_EQ(entry.name, "link");
  EXPECT_FALSE(entry.regular);
}

TEST_F(ArchiveReaderTest, RefusesBombsWhetherTheyAreReadOrPassedOver) {
  run_tool("cd '" + (folder_ / "in").string() +
               "' && truncate -s 300M zeros && bsdtar --format gnutar -c -f - zeros | zstd -q -19 -o ../bomb.tar.zst",
           {});
  for (const bool read : {true, false}) {
    auto reader = ArchiveReader::open(folder_ / "bomb.tar.zst");
    ArchiveEntry entry;
    ASSERT_TRUE(reader.next(entry));
    EXPECT_THROW(read ? void(reader.read([](ByteView) { return true; })) : void(reader.next(entry)), Unsupported);
  }
}

TEST_F(ArchiveReaderTest, RefusesTooManyEntriesAndTooMuchContent) {
  const auto path = pack("a.tar", "--format pax");
  ArchiveEntry entry;
  auto few = ArchiveReader::open(path, {.max_entries = 1});
  ASSERT_TRUE(few.next(entry));
  EXPECT_THROW(few.next(entry), Unsupported);
  auto little = ArchiveReader::open(path, {.max_content_bytes = 1000});
  while (little.next(entry) && entry.name != "deep/b.txt") {
  }
  EXPECT_THROW(content_of(little), Unsupported);
}

TEST_F(ArchiveReaderTest, SaysWhatIsWrongWithTruncatedArchives) {
  for (const auto* options : {"-z", "--format zip", "--format pax", "-J"}) {
    SCOPED_TRACE(options);
    const auto whole = read_file(pack("whole", options));
    const auto half = ByteView(whole).first(whole.size() / 2);
    const auto pass = [&] {
      auto reader = ArchiveReader::of_bytes(half, "half");
      ArchiveEntry entry;
      while (reader.next(entry)) content_of(reader);
    };
    EXPECT_THROW(pass(), CorruptData);
  }
}

TEST(ArchiveReader, TakesNothingElseForAnArchive) {
  const std::string text = "import numpy\n";
  EXPECT_THROW(
      {
        auto reader = ArchiveReader::of_bytes(std::as_bytes(std::span(text)), "text.zip");
        ArchiveEntry entry;
        reader.next(entry);
      },
      CorruptData);
  EXPECT_THROW(ArchiveReader::open("/nonexistent/a.zip"), std::system_error);
}

TEST(ArchiveReader, KnowsArchivesByTheirNames) {
  for (const auto* name : {"a.zip", "A.ZIP", "a.tar", "a.tar.gz", "a.tgz", "a.tar.xz", "a.tar.zst", "a.b.tar.bz2"})
    EXPECT_TRUE(has_archive_name(name)) << name;
  for (const auto* name : {"zip", ".zip", "a.gz", "a.whl", "a.zip.part", ""})
    EXPECT_FALSE(has_archive_name(name)) << name;
}

}  // namespace
}  // namespace varve::codec
