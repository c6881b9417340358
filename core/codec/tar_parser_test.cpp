#include "core/codec/tar_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/refusal.h"
#include "testing/tar_support.h"

namespace varve::codec {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

const std::string kGnuMagic("ustar  \0", 8);

TarEntry only_entry(const TarBuilder& tar) {
  auto entries = parse_tar(tar.bytes());
  EXPECT_EQ(entries.size(), 1u);
  return entries.empty() ? TarEntry() : std::move(entries.front().entry);
}

std::string tar_refusal(ByteView tar) {
  return varve::test::refusal_of([&] { parse_tar(tar); });
}

std::string tar_refusal(const TarBuilder& tar) { return tar_refusal(tar.bytes()); }

TEST(TarParserTest, ReportsContentAndWhereItLies) {
  const auto tar = TarBuilder().file("a", "hello").file("dir/b", std::string(1000, 'x')).file("empty", "").end();
  for (const std::size_t step : {1, 100, 512, 10'000}) {
    const auto entries = parse_tar(tar.bytes(), step);
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].entry.name, "a");
    EXPECT_EQ(as_text(entries[0].content), "hello");
    EXPECT_THAT(entries[0].entry.runs, ElementsAre(ContentRun{0, 512, 5}));
    EXPECT_EQ(entries[1].entry.header_stream_offset, 1024u);
    EXPECT_EQ(entries[1].entry.data_stream_offset, 1536u);
    EXPECT_EQ(entries[1].entry.data_stream_length, 1000u);
    EXPECT_EQ(as_text(entries[1].content), std::string(1000, 'x'));
    EXPECT_TRUE(entries[2].entry.runs.empty());
    for (const auto& kept : entries) EXPECT_TRUE(kept.ended);
  }
}

TEST(TarParserTest, KnowsAllTypes) {
  const auto entries = parse_tar(
      TarBuilder()
          .header({.name = "old", .typeflag = '\0'})
          .header({.name = "old-dir/", .typeflag = '\0', .size = 100})
          .header({.name = "contiguous", .typeflag = '7'})
          .header({.name = "hard", .typeflag = '1', .link_name = "old"})
          .header({.name = "soft", .typeflag = '2', .link_name = "../x"})
          .header({.name = "tty", .typeflag = '3', .device_major = "0000004", .device_minor = "0000100"})
          .header({.name = "disk", .typeflag = '4', .device_major = base_256(70'000, 8), .device_minor = "0000001"})
          .header({.name = "dir", .typeflag = '5'})
          .header({.name = "pipe", .typeflag = '6'})
          .end()
          .bytes());
  std::vector<std::pair<std::string, FileType>> types;
  for (const auto& kept : entries) types.emplace_back(kept.entry.name, kept.entry.type);
  EXPECT_THAT(types, ElementsAre(Pair("old", FileType::kRegular), Pair("old-dir/", FileType::kDirectory),
                                 Pair("contiguous", FileType::kRegular), Pair("hard", FileType::kHardLink),
                                 Pair("soft", FileType::kSymlink), Pair("tty", FileType::kCharDevice),
                                 Pair("disk", FileType::kBlockDevice), Pair("dir", FileType::kDirectory),
                                 Pair("pipe", FileType::kFifo)));
  EXPECT_EQ(entries[4].entry.link_name, "../x");
  EXPECT_EQ(entries[5].entry.device_major, 4u);
  EXPECT_EQ(entries[5].entry.device_minor, 64u);
  EXPECT_EQ(entries[6].entry.device_major, 70'000u);
}

TEST(TarParserTest, TheSizeOfAHardLinkMeansNothing) {
  const auto entries = parse_tar(TarBuilder()
                                     .file("a", "hello")
                                     .header({.name = "b", .typeflag = '1', .link_name = "a", .size = 5})
                                     .file("c", "!")
                                     .end()
                                     .bytes());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[1].entry.size, 0u);
  EXPECT_EQ(as_text(entries[2].content), "!");
}

TEST(TarParserTest, ReadsUstarPrefixAndStarPrefix) {
  EXPECT_EQ(only_entry(TarBuilder().header({.name = "name", .prefix = "a/b"}).end()).name, "a/b/name");
  EXPECT_EQ(only_entry(TarBuilder().header({.name = "name", .magic = kGnuMagic, .prefix = "000"}).end()).name, "name")
      << "GNU keeps times there";
  // star: access and change times at 476 and 488.
  const HeaderFields star{.name = "name",
                          .prefix = "p",
                          .patches = {{476, "12345670123 "}, {488, "12345670123 "}, {508, std::string("tar\0", 4)}}};
  EXPECT_EQ(only_entry(TarBuilder().header(star).end()).name, "p/name");
}

TEST(TarParserTest, ReadsNumbersInBase256) {
  const auto entry =
      only_entry(TarBuilder().header({.uid = base_256(5'000'000'000, 8), .mtime = base_256(-1'000'000, 12)}).end());
  EXPECT_EQ(entry.uid, 5'000'000'000u);
  EXPECT_EQ(entry.mtime_seconds, -1'000'000);
  EXPECT_EQ(only_entry(TarBuilder().header({.mtime = base_256(-1, 12)}).end()).mtime_seconds, -1);
}

TEST(TarParserTest, RefusesNumbersThatCannotBe) {
  EXPECT_THAT(tar_refusal(TarBuilder().header({.uid = base_256(-1, 8)})),
              HasSubstr("layer: tar header at 0: uid -1 is out of range"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.uid = "00008"})), HasSubstr("the uid is not a number"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.patches = {{124, base_256(INT64_MAX, 12)}}})),
              HasSubstr("is out of range"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.patches = {{124, "\x80" + std::string(11, '\x7f')}}})),
              HasSubstr("does not fit"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.patches = {{136, std::string(12, '\xff')}}}).end()), "")
      << "that is -1";
}

TEST(TarParserTest, AcceptsSignedChecksumsAndNoOthers) {
  EXPECT_EQ(only_entry(TarBuilder().header({.name = "\xe4\xf6\xfc", .signed_checksum = true}).end()).name,
            "\xe4\xf6\xfc");
  auto bytes = to_bytes(TarBuilder().file("a", "x").end().bytes());
  bytes[3] = std::byte(1);
  EXPECT_THAT(tar_refusal(bytes), HasSubstr("layer: tar header at 0: wrong checksum"));
}

TEST(TarParserTest, LongNamesBelongToTheNextEntryOnly) {
  const std::string name(300, 'n'), link(400, 'l');
  const auto entries =
      parse_tar(TarBuilder()
                    .long_name('L', name)
                    .long_name('K', link)
                    .header({.name = "short", .typeflag = '2', .link_name = "short", .magic = kGnuMagic})
                    .file("next", "")
                    .end()
                    .bytes());
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].entry.name, name);
  EXPECT_EQ(entries[0].entry.link_name, link);
  EXPECT_EQ(entries[0].entry.header_stream_offset, 0u);
  EXPECT_EQ(entries[1].entry.name, "next");
}

TEST(TarParserTest, PaxRecordsBeatTheHeader) {
  const auto entry = only_entry(TarBuilder()
                                    .pax({{"path", "from pax/\xff"},
                                          {"size", "3"},
                                          {"uid", "4294967296"},
                                          {"gid", "7"},
                                          {"mtime", "1700000000.25"},
                                          {"comment", "two\nlines=\n"},
                                          {"uname", "nobody"}})
                                    .header({.name = "from header", .size = 0})
                                    .data("abc")
                                    .end());
  EXPECT_EQ(entry.name, "from pax/\xff");
  EXPECT_EQ(entry.size, 3u);
  EXPECT_EQ(entry.uid, 4'294'967'296u);
  EXPECT_EQ(entry.gid, 7u);
  EXPECT_EQ(entry.mtime_seconds, 1'700'000'000);
  EXPECT_EQ(entry.mtime_nanoseconds, 250'000'000u);
}

TEST(TarParserTest, TimesBeforeTheEpochCountUpFromTheSecondBelow) {
  const auto time_of = [](const std::string& text) {
    const auto entry = only_entry(TarBuilder().pax({{"mtime", text}}).header({}).end());
    return std::pair(entry.mtime_seconds, entry.mtime_nanoseconds);
  };
  EXPECT_EQ(time_of("-0.5"), std::pair(std::int64_t(-1), 500'000'000u));
  EXPECT_EQ(time_of("-3"), std::pair(std::int64_t(-3), 0u));
  EXPECT_EQ(time_of("-3.000000001"), std::pair(std::int64_t(-4), 999'999'999u));
  EXPECT_EQ(time_of("1.1234567899"), std::pair(std::int64_t(1), 123'456'789u));
  EXPECT_EQ(time_of("5."), std::pair(std::int64_t(5), 0u));
  for (const auto* bad : {"x", "-", ".", "1.5e3", "1.-5", "99999999999999999999"}) {
    EXPECT_THAT(tar_refusal(TarBuilder().pax({{"mtime", bad}}).header({}).end()), HasSubstr("mtime")) << bad;
  }
}

TEST(TarParserTest, GlobalRecordsHoldUntilTheyAreChanged) {
  const auto entries = parse_tar(TarBuilder()
                                     .pax({{"uid", "11"}, {"SCHILY.xattr.user.all", "yes"}}, 'g')
                                     .header({.name = "a"})
                                     .pax({{"uid", "12"}})
                                     .header({.name = "b"})
                                     .pax({{"uid", ""}})
                                     .header({.name = "c", .uid = "0000015"})
                                     .pax({{"uid", "14"}}, 'g')
                                     .header({.name = "d"})
                                     .pax({{"uid", ""}}, 'g')
                                     .header({.name = "e", .uid = "0000017"})
                                     .end()
                                     .bytes());
  std::vector<std::pair<std::string, std::uint64_t>> uids;
  for (const auto& kept : entries) {
    uids.emplace_back(kept.entry.name, kept.entry.uid);
    EXPECT_THAT(kept.entry.xattrs, ElementsAre(Pair("user.all", "yes")));
  }
  EXPECT_THAT(uids, ElementsAre(Pair("a", 11), Pair("b", 12), Pair("c", 13), Pair("d", 14), Pair("e", 15)));
  EXPECT_EQ(entries[0].entry.header_stream_offset, 1024u) << "a global header is no part of the entry";
  EXPECT_EQ(entries[1].entry.header_stream_offset, 1536u) << "its own extended header is";
}

TEST(TarParserTest, GlobalsStaySmall) {
  TarBuilder tar;
  for (int i = 0; i < 20; ++i) tar.pax({{"key" + std::to_string(i), std::string(4'000, 'x')}}, 'g');
  EXPECT_THAT(tar_refusal(tar), HasSubstr("more than 65536 bytes of attributes"));
}

TEST(TarParserTest, RefusesBrokenPaxRecords) {
  const auto with_records = [](std::string_view text) {
    return tar_refusal(
        TarBuilder().header({.name = "p", .typeflag = 'x', .size = text.size()}).data(text).header({}).end());
  };
  EXPECT_EQ(with_records("8 a=bcd\n"), "");
  for (const auto* bad : {"9 a=bcd\n", "7 a=bcd\n", "a=b\n", "0 a=b\n", "8 abcde\n", "7 =bcd\n", "8 a=bcd ",
                          "99999999999999999999 a=b\n", "8", "8 ", "-8 a=bcd\n"}) {
    EXPECT_THAT(with_records(bad), HasSubstr("layer: extended tar header at 0: ")) << bad;
  }
  EXPECT_THAT(with_records(std::string_view("12 path=a\0b\n", 12)), HasSubstr("a name holds a NUL byte"));
  EXPECT_THAT(with_records("9 uid=-5\n"), HasSubstr("uid is not a number in range"));
  EXPECT_THAT(with_records("29 size=99999999999999999999\n"), HasSubstr("size is not a number in range"));
}

TEST(TarParserTest, XattrsOfAllWriters) {
  const auto entry = only_entry(TarBuilder()
                                    .pax({{"LIBARCHIVE.xattr.user.both", "bG9zZXI="},
                                          {"SCHILY.xattr.user.both", "winner"},
                                          {"SCHILY.xattr.security.capability", std::string("\x01\0\0\x02", 4)},
                                          {"SCHILY.xattr.user.empty", ""},
                                          {"LIBARCHIVE.xattr.user.a%3Db%25", "AAEC/w"},
                                          {"RHT.security.selinux", "system_u:object_r:bin_t:s0"}})
                                    .header({})
                                    .end());
  EXPECT_THAT(
      entry.xattrs,
      UnorderedElementsAre(Pair("user.both", "winner"), Pair("security.capability", std::string("\x01\0\0\x02", 4)),
                           Pair("user.empty", ""), Pair("user.a=b%", std::string("\0\x01\x02\xff", 4)),
                           Pair("security.selinux", "system_u:object_r:bin_t:s0")));
  EXPECT_THAT(tar_refusal(TarBuilder().pax({{"LIBARCHIVE.xattr.user.x", "*"}}).header({})), HasSubstr("not base64"));
  EXPECT_THAT(tar_refusal(TarBuilder().pax({{"SCHILY.xattr.", "x"}}).header({})), HasSubstr("impossible name"));
}

// linux/posix_acl_xattr.h: version 2; then tag, permissions, id.
std::string acl(const std::vector<std::array<std::uint32_t, 3>>& entries) {
  Bytes bytes;
  append_le(bytes, std::uint32_t(2));
  for (const auto& [tag, permissions, id] : entries) {
    append_le(bytes, std::uint16_t(tag));
    append_le(bytes, std::uint16_t(permissions));
    append_le(bytes, id);
  }
  return std::string(as_text(bytes));
}

TEST(TarParserTest, AclTextBecomesTheKernelsForm) {
  constexpr std::uint32_t kNone = 0xffffffff;
  const auto entry =
      only_entry(TarBuilder()
                     .pax({{"SCHILY.acl.access",
                            "user::rwx,group::r-x,mask::rwx,other::r--,user:lisa:rw-:1000,user:root:r--,group:50:--x"},
                           {"SCHILY.acl.default", "user::rwx\ngroup::r-x\nother::---\n"}})
                     .header({.name = "d", .typeflag = '5'})
                     .end());
  EXPECT_THAT(entry.xattrs, UnorderedElementsAre(Pair("system.posix_acl_access", acl({{1, 7, kNone},
                                                                                      {2, 4, 0},
                                                                                      {2, 6, 1000},
                                                                                      {4, 5, kNone},
                                                                                      {8, 1, 50},
                                                                                      {0x10, 7, kNone},
                                                                                      {0x20, 4, kNone}})),
                                                 Pair("system.posix_acl_default",
                                                      acl({{1, 7, kNone}, {4, 5, kNone}, {0x20, 0, kNone}}))));
}

TEST(TarParserTest, AclsThatSayNothingOrCannotBeResolvedAreLeftOut) {
  EXPECT_TRUE(only_entry(TarBuilder().pax({{"SCHILY.acl.access", "user::rw-,group::r--,other::r--"}}).header({}).end())
                  .xattrs.empty());
  EXPECT_TRUE(only_entry(TarBuilder()
                             .pax({{"SCHILY.acl.access", "user::rw-,user:lisa:rwx,group::r--,mask::rwx,other::r--"}})
                             .header({})
                             .end())
                  .xattrs.empty());
  const auto kept = only_entry(TarBuilder()
                                   .pax({{"SCHILY.acl.access", "user::rw-,user:1:rwx,group::r--,mask::rwx,other::r--"},
                                         {"SCHILY.xattr.system.posix_acl_access", "binary"}})
                                   .header({})
                                   .end());
  EXPECT_THAT(kept.xattrs, ElementsAre(Pair("system.posix_acl_access", "binary")));
}

TEST(TarParserTest, RefusesTextThatIsNoAcl) {
  for (const auto* bad : {"nonsense", "user::rwx", "user::rwx,group::rwx,other::q--",
                          "user::r,user:5:r,group::r,other::r", "user::r,group::r,other::r,other::r", "a:b:c:d:e"}) {
    EXPECT_THAT(tar_refusal(TarBuilder().pax({{"SCHILY.acl.access", bad}}).header({})), HasSubstr("ACL")) << bad;
  }
}

TEST(TarParserTest, ReadsOldGnuSparseFilesWithContinuation) {
  HeaderFields fields{.name = "s", .typeflag = 'S', .size = 30 * 10, .magic = kGnuMagic};
  fields.patches = {{483, octal(100'000, 12)}, {482, "\x01"}};
  std::string more(512, '\0');
  std::vector<ContentRun> runs;
  for (std::size_t i = 0; i < 30; ++i) {
    const auto pair = octal(i * 3000, 12) + std::string(1, '\0') + octal(10, 12) + std::string(1, '\0');
    if (i < 4)
      fields.patches.emplace_back(386 + i * 24, pair.substr(0, 23));
    else if (i < 25)
      more.replace((i - 4) * 24, 24, pair.substr(0, 24));
    runs.push_back({i * 3000, 512 * 3 + i * 10, 10});
  }
  more[504] = 1;
  std::string last(512, '\0');
  for (std::size_t i = 25; i < 30; ++i)
    last.replace((i - 25) * 24, 24,
                 (octal(i * 3000, 12) + std::string(1, '\0') + octal(10, 12) + std::string(1, '\0')).substr(0, 24));
  const auto tar = TarBuilder()
                       .header(fields)
                       .raw(as_bytes(more))
                       .raw(as_bytes(last))
                       .data(std::string(300, 'd'))
                       .file("next", "n")
                       .end();
  for (const std::size_t step : {1, 512, 100'000}) {
    const auto entries = parse_tar(tar.bytes(), step);
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].entry.size, 100'000u);
    EXPECT_TRUE(entries[0].entry.sparse);
    EXPECT_EQ(entries[0].entry.runs, runs);
    EXPECT_EQ(entries[0].content.size(), 300u);
    EXPECT_EQ(as_text(entries[1].content), "n");
  }
}

TEST(TarParserTest, ReadsAllPaxSparseFormats) {
  const std::vector<std::pair<std::string, std::string>> format_00 = {
      {"GNU.sparse.size", "5000"},  {"GNU.sparse.numblocks", "2"}, {"GNU.sparse.offset", "1000"},
      {"GNU.sparse.numbytes", "5"}, {"GNU.sparse.offset", "4995"}, {"GNU.sparse.numbytes", "5"}};
  const std::vector<std::pair<std::string, std::string>> format_01 = {{"GNU.sparse.size", "5000"},
                                                                      {"GNU.sparse.numblocks", "2"},
                                                                      {"GNU.sparse.map", "1000,5,4995,5"},
                                                                      {"GNU.sparse.name", "real"}};
  const std::vector<std::pair<std::string, std::string>> format_10 = {{"GNU.sparse.major", "1"},
                                                                      {"GNU.sparse.minor", "0"},
                                                                      {"GNU.sparse.name", "real"},
                                                                      {"GNU.sparse.realsize", "5000"}};
  std::string map = "2\n1000\n5\n4995\n5\n";
  map.resize(512);
  struct Case {
    TarBuilder tar;
    std::uint64_t data_at;
  };
  const std::vector<Case> cases = {
      {TarBuilder().pax(format_00).header({.name = "real", .size = 10}).data("abcdefghij").end(), 1536},
      {TarBuilder().pax(format_01).header({.name = "stub", .size = 10}).data("abcdefghij").end(), 1536},
      {TarBuilder().pax(format_10).header({.name = "stub", .size = 522}).data(map + "abcdefghij").end(), 2048}};
  for (const auto& [tar, data_at] : cases) {
    const auto entry = only_entry(tar);
    EXPECT_EQ(entry.name, "real");
    EXPECT_EQ(entry.size, 5000u);
    EXPECT_EQ(entry.data_stream_offset, data_at);
    EXPECT_EQ(entry.data_stream_length, 10u);
    EXPECT_THAT(entry.runs, ElementsAre(ContentRun{1000, data_at, 5}, ContentRun{4995, data_at + 5, 5}));
    const auto content = content_by_runs(tar.bytes(), entry);
    EXPECT_EQ(as_text(content).substr(1000, 5), "abcde");
    EXPECT_EQ(as_text(content).substr(4995), "fghij");
  }
}

TEST(TarParserTest, RefusesSparseMapsThatCannotBe) {
  const auto with_map = [](const std::string& map, const std::string& size = "5000") {
    return tar_refusal(TarBuilder()
                           .pax({{"GNU.sparse.size", size}, {"GNU.sparse.map", map}})
                           .header({.size = 10})
                           .data("abcdefghij")
                           .end());
  };
  EXPECT_EQ(with_map("0,5,100,5"), "");
  EXPECT_THAT(with_map("100,5,0,5"), HasSubstr("out of order"));
  EXPECT_THAT(with_map("0,5,4,5"), HasSubstr("overlap"));
  EXPECT_THAT(with_map("0,5,4996,5"), HasSubstr("outside the file"));
  EXPECT_THAT(with_map("0,5,100,6"), HasSubstr("more than is stored"));
  EXPECT_THAT(with_map("0,5,100,4"), HasSubstr("more is stored"));
  EXPECT_THAT(with_map("0,5,100"), HasSubstr("middle of a pair"));
  EXPECT_THAT(with_map("0,5,1152921504606846977,5"), HasSubstr("in range"));
  const auto with_data_map = [](std::string map) {
    map.resize(512);
    return tar_refusal(TarBuilder()
                           .pax({{"GNU.sparse.major", "1"}, {"GNU.sparse.minor", "0"}, {"GNU.sparse.realsize", "10"}})
                           .header({.size = 512})
                           .data(map)
                           .end());
  };
  EXPECT_EQ(with_data_map("0\n"), "");
  EXPECT_THAT(with_data_map("1\n5\n"), HasSubstr("not made of numbers"));
  EXPECT_THAT(with_data_map("x"), HasSubstr("not made of numbers"));
  EXPECT_THAT(with_data_map("99999999999999999999\n"), HasSubstr("too long"));
  EXPECT_THAT(with_data_map("99999999\n"), HasSubstr("more than 524288 pieces"));
  EXPECT_THAT(with_data_map(std::string(512, '1')), HasSubstr("too long"));
}

TEST(TarParserTest, AcceptsMissingEndsAndIgnoresWhatFollowsThem) {
  EXPECT_EQ(parse_tar({}).size(), 0u);
  EXPECT_EQ(parse_tar(TarBuilder().file("a", "x").bytes()).size(), 1u);
  EXPECT_EQ(parse_tar(TarBuilder().file("a", "x").raw(Bytes(512)).bytes()).size(), 1u) << "one zero block at the end";
  EXPECT_EQ(parse_tar(TarBuilder().header({.size = 1}).raw(Bytes(1)).bytes()).size(), 1u)
      << "no padding after the last content";
  EXPECT_EQ(parse_tar(TarBuilder().file("a", "x").end().raw(as_bytes("anything")).file("b", "").bytes()).size(), 1u);
}

TEST(TarParserTest, RefusesTarsThatStopInside) {
  const auto tar = TarBuilder().pax({{"path", "p"}}).header({.size = 600}).raw(Bytes(600));
  for (std::size_t size = 1; size < tar.bytes().size(); ++size) {
    ASSERT_THAT(tar_refusal(tar.bytes().first(size)), HasSubstr("ends at " + std::to_string(size))) << size;
  }
  EXPECT_EQ(tar_refusal(tar), "");
  EXPECT_THAT(tar_refusal(TarBuilder().pax({{"path", "p"}}).end()), HasSubstr("after an extended header"));
}

TEST(TarParserTest, RefusesWhatReadersDisagreeAbout) {
  EXPECT_THAT(tar_refusal(TarBuilder().file("a", "x").raw(Bytes(512)).file("hidden", "x").end()),
              HasSubstr("a lone zero block before 1536"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.name = ""})), HasSubstr("it has no name"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.typeflag = '2'})), HasSubstr("a link without a target"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.typeflag = 'M'})), HasSubstr("multi-volume"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.typeflag = 'Q'})), HasSubstr("type 0x51 is not supported"));
}

TEST(TarParserTest, SkipsLabelsAndReadsDirectoriesOfIncrementalDumps) {
  const auto entries = parse_tar(TarBuilder()
                                     .header({.name = "label", .typeflag = 'V'})
                                     .header({.name = "d/", .typeflag = 'D', .size = 7, .magic = kGnuMagic})
                                     .data("Yfile\0\0")
                                     .file("d/file", "x")
                                     .end()
                                     .bytes());
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].entry.type, FileType::kDirectory);
  EXPECT_EQ(entries[0].entry.size, 0u);
  EXPECT_EQ(entries[1].entry.name, "d/file");
}

TEST(TarParserTest, KeepsToItsLimits) {
  EXPECT_THAT(tar_refusal(TarBuilder().header({.typeflag = 'x', .size = kMaxPaxBytes + 1})),
              HasSubstr("exceed the limit"));
  EXPECT_THAT(tar_refusal(TarBuilder().header({.typeflag = 'L', .size = kMaxPaxBytes + 1})),
              HasSubstr("exceed the limit"));
  EXPECT_THAT(tar_refusal(TarBuilder().pax({{"SCHILY.xattr.user.x", std::string(70'000, 'x')}}).header({})),
              HasSubstr("more than 65536 bytes"));
}

TEST(TarParserTest, FilesAbove8GiBNeedNoMemory) {
  struct Counting final : TarListener {
    void on_entry(TarEntry entry) override { size = entry.size; }
    void on_content(ByteView bytes) override { content += bytes.size(); }
    void on_entry_end() override {}
    std::uint64_t size = 0, content = 0;
  } counting;
  TarParser parser("layer", counting);
  const auto tar = TarBuilder().header({.size = (std::uint64_t(1) << 33) + 512});
  parser.feed(tar.bytes());
  const Bytes zeros(1 << 20);
  for (int i = 0; i < 1 << 13; ++i) parser.feed(zeros);
  parser.feed(Bytes(512));
  parser.finish();
  EXPECT_EQ(counting.size, counting.content);
}

}  // namespace
}  // namespace varve::codec
