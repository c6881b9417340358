#include "analyzer/python/install_record.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "core/base/errors.h"

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Row {
  std::string path;
  std::optional<Digest> sha256;
  std::optional<std::uint64_t> size;
};

struct Read {
  RecordTally tally;
  std::vector<Row> rows;
  std::vector<std::string> paths() const {
    std::vector<std::string> out;
    for (const auto& row : rows) out.push_back(row.path);
    return out;
  }
};

Read read(std::string_view text) {
  Read out;
  out.tally = read_record(text, [&](const RecordEntry& entry) {
    out.rows.push_back({std::string(entry.path), entry.sha256, entry.size});
  });
  return out;
}

TEST(RecordTest, ReadsHashesAndSizes) {
  const auto digest = digest_of("");
  const auto got = read(
      "a/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\r\na-1.dist-info/"
      "RECORD,,\nb.py,md5=abc,12\nc.py,sha256=short,x\n");
  ASSERT_THAT(got.rows, SizeIs(4));
  EXPECT_EQ(got.rows[0].sha256, digest);
  EXPECT_EQ(got.rows[0].size, 0u);
  EXPECT_EQ(got.rows[1].path, "a-1.dist-info/RECORD");
  EXPECT_FALSE(got.rows[1].sha256 || got.rows[1].size);
  EXPECT_EQ(got.rows[2].size, 12u);
  EXPECT_FALSE(got.rows[2].sha256);
  EXPECT_FALSE(got.rows[3].sha256 || got.rows[3].size);
  EXPECT_EQ(got.tally.entries, 4u);
  EXPECT_EQ(got.tally.unreadable, 0u);
}

TEST(RecordTest, ReadsHexDigestsAsDebianWritesThem) {
  const auto digest = digest_of("x");
  EXPECT_EQ(read("a,sha256=" + digest.hex() + ",1\n").rows[0].sha256, digest);
}

TEST(RecordTest, ReadsQuotesCommasAndLineEndsInPaths) {
  EXPECT_THAT(read("\"a,b.py\",,\n\"c \"\"d\"\".py\",,3\n\"e\nf.py\",,\ng,\"sha256=x\",\"4\"\nh\"i.py,,\n").paths(),
              ElementsAre("a,b.py", "c \"d\".py", "e\nf.py", "g", "h\"i.py"));
  EXPECT_EQ(read("\"a\",,\"7\"").rows[0].size, 7u);
}

TEST(RecordTest, WindowsSeparatorsBecomeSlashes) {
  EXPECT_THAT(read("a\\b\\c.py,,\n..\\..\\Scripts\\x.exe,,\n").paths(), ElementsAre("a/b/c.py", "../../Scripts/x.exe"));
}

TEST(RecordTest, AQuoteThatNeverEndsCostsItsOwnLineOnly) {
  const auto got = read("a,,\n\"b,,\nc,,\nd,,\n");
  EXPECT_THAT(got.paths(), ElementsAre("a", "c", "d"));
  EXPECT_EQ(got.tally.unreadable, 1u);
  EXPECT_EQ(got.tally.first_unreadable, 2u);
}

TEST(RecordTest, QuotedRowsAreBounded) {
  std::string text = "\"" + std::string(100'000, 'x') + "\",,\nok,,\n";
  EXPECT_THAT(read(text).paths(), ElementsAre("ok"));
  text.clear();
  for (int i = 0; i < 20'000; ++i) text += "\"a\n\",";  // one row without an end for Python's csv
  EXPECT_GT(read(text).tally.unreadable, 0u);
}

TEST(RecordTest, CountsWhatCannotBeAPath) {
  const auto got =
      read(std::string(kMaxRecordPathBytes + 1, 'p') + ",,\n,sha256=x,1\n\n   \nok,,\n" + std::string("a\0b,,\n", 6));
  EXPECT_EQ(got.tally.unreadable, 3u);
  EXPECT_EQ(got.tally.first_unreadable, 1u);
  EXPECT_THAT(got.paths(), ElementsAre("   ", "ok"));
}

TEST(RecordTest, AMillionRowsPassThrough) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "a/b.py,,1\n";
  std::uint64_t bytes = 0;
  const auto tally = read_record(text, [&](const RecordEntry& entry) { bytes += *entry.size; });
  EXPECT_EQ(tally.entries, 1'000'000u);
  EXPECT_EQ(bytes, 1'000'000u);
}

TEST(PathListTest, ReadsInstalledFiles) {
  std::vector<std::string> paths;
  const auto tally = read_path_list("../a/__init__.py\r\n\n..\\a\\b.py\nPKG-INFO\n",
                                    [&](std::string_view path) { paths.emplace_back(path); });
  EXPECT_THAT(paths, ElementsAre("../a/__init__.py", "../a/b.py", "PKG-INFO"));
  EXPECT_EQ(tally.entries, 3u);
}

TEST(ResolvePathTest, FollowsDotsInTheTree) {
  const auto resolved = [](const char* folder, const char* path) {
    return resolve_path(folder, path).value_or("(none)");
  };
  EXPECT_EQ(resolved("usr/lib/python3/dist-packages", "../../../bin/f2py"), "usr/bin/f2py");
  EXPECT_EQ(resolved("a/b", "c//./d"), "a/b/c/d");
  EXPECT_EQ(resolved("", "a"), "a");
  EXPECT_EQ(resolved("/a/", "b"), "a/b");
  EXPECT_EQ(resolved("a", "/etc/x"), "etc/x");
  EXPECT_EQ(resolved("a", "../../x"), "(none)");
  EXPECT_EQ(resolved("a", ".."), "(none)");
  EXPECT_EQ(resolved("a", "/"), "(none)");
  EXPECT_EQ(resolved("a", "/../x"), "(none)");
}

TEST(TopLevelTest, LeavesOutWhatCannotBeImported) {
  EXPECT_THAT(parse_top_level("numpy\n\n  _cffi  \nno-name\nnumpy\na/b\na\\c\n1x\n\xC3\xA9t\xC3\xA9\n"),
              ElementsAre("numpy", "_cffi", "a.b", "a.c", "\xC3\xA9t\xC3\xA9"));
  EXPECT_THAT(parse_top_level(""), IsEmpty());
}

TEST(TopLevelTest, ManyNamesTakeNoSquareOfTime) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "name" + std::to_string(i) + '\n';
  EXPECT_EQ(parse_top_level(text).size(), 200'000u);
}

TEST(InstallerTest, IsOneWord) {
  EXPECT_EQ(parse_installer("pip\n"), "pip");
  EXPECT_EQ(parse_installer("  UV 0.4\n"), "uv");
  EXPECT_EQ(parse_installer("\n"), "");
}

TEST(DirectUrlTest, ReadsAllThreeKinds) {
  const auto folder = parse_direct_url(R"({"dir_info": {"editable": true}, "url": "file:///home/me/my%20project"})");
  EXPECT_EQ(folder.kind, DirectUrl::Kind::kFolder);
  EXPECT_TRUE(folder.editable);
  EXPECT_EQ(folder.url, "file:///home/me/my%20project");
  const auto vcs = parse_direct_url(
      R"({"url": "https://example.org/a.git", "vcs_info": {"commit_id": "ab12", "requested_revision": "main", )"
      R"("vcs": "git"}, "subdirectory": "python"})");
  EXPECT_EQ(vcs.kind, DirectUrl::Kind::kVcs);
  EXPECT_EQ(vcs.vcs, "git");
  EXPECT_EQ(vcs.commit, "ab12");
  EXPECT_EQ(vcs.requested_revision, "main");
  EXPECT_EQ(vcs.subdirectory, "python");
  EXPECT_FALSE(vcs.editable);
  const auto archive = parse_direct_url(
      R"({"url": "https://example.org/a.whl", "archive_info": {"hash": "sha256=00ff", "hashes": {"md5": "11", )"
      R"("bad": 3}}})");
  EXPECT_EQ(archive.kind, DirectUrl::Kind::kArchive);
  EXPECT_THAT(archive.hashes, ElementsAre(testing::Pair("md5", "11"), testing::Pair("sha256", "00ff")));
}

TEST(DirectUrlTest, SaysWhatIsWrong) {
  const auto complaint = [](std::string_view text) -> std::string {
    try {
      parse_direct_url(text, "a-1.dist-info/direct_url.json");
    } catch (const CorruptData& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(complaint("{"), HasSubstr("a-1.dist-info/direct_url.json: no JSON"));
  EXPECT_THAT(complaint("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(complaint("{\"dir_info\": {}}"), HasSubstr("no \"url\""));
  EXPECT_THAT(complaint("{\"url\": \"x\", \"dir_info\": 3}"), HasSubstr("neither"));
  EXPECT_THAT(complaint(std::string(2 << 20, ' ')), HasSubstr("bytes"));
  EXPECT_THAT(complaint(std::string(500'000, '[')), HasSubstr("no JSON"));
  EXPECT_THAT(complaint("{\"url\": \"x\", \"y\": " + std::string(400'000, '[') + std::string(400'000, ']') + "}"),
              HasSubstr("neither"));
}

}  // namespace
}  // namespace varve::python
